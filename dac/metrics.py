"""The numbers of the tables, by scikit-learn. All unknown classes are one class, `num_known`."""

import warnings

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score


def closed_set_accuracy(labels: np.ndarray, predictions: np.ndarray, num_known: int) -> float:
    """Accuracy on the images of known classes; NaN if there are none.

    With k predictions per image (n x k instead of n) one of them must be right: top-k.
    """
    known = (labels >= 0) & (labels < num_known)
    if not known.any():
        return float("nan")
    is_right = predictions.reshape(len(labels), -1) == labels[:, None]
    return float(np.mean(is_right[known].any(axis=1)))


def open_set_balanced_accuracy(
    labels: np.ndarray, predictions: np.ndarray, num_known: int
) -> float:
    """BA of Eq. (15): mean recall over the known classes and the one unknown class.

    Labels and predictions of `num_known` and above mean unknown and rejected. A class without
    test images does not count, nor does an image without a label (-1).
    """
    judged = np.asarray(labels) >= 0
    labels = np.minimum(np.asarray(labels)[judged], num_known)
    predictions = np.minimum(np.asarray(predictions)[judged], num_known)
    with warnings.catch_warnings():
        # y_pred may name a class that no test image has; its recall does not exist.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return float(balanced_accuracy_score(labels, predictions))


def auroc(is_inlier: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve, inliers positive, ties averaged; NaN unless both kinds exist."""
    if is_inlier.all() or not is_inlier.any():
        return float("nan")
    return float(roc_auc_score(is_inlier, scores))


def rates(is_inlier: np.ndarray, accepted: np.ndarray) -> tuple[float, float]:
    """Inlier recall (accepted inliers) and outlier rejection (rejected outliers)."""
    recall = float(np.mean(accepted[is_inlier])) if is_inlier.any() else float("nan")
    rejection = float(np.mean(~accepted[~is_inlier])) if (~is_inlier).any() else float("nan")
    return recall, rejection
