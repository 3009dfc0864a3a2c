"""The metrics of the tables. All unknown classes are one class, `num_known`.

Equal to scikit-learn's to the last bit (tests/test_metrics.py). They are written out here because
importing scikit-learn took a second in every training and evaluation.
"""

import numpy as np


def closed_set_accuracy(labels: np.ndarray, predictions: np.ndarray, num_known: int) -> float:
    """Accuracy on the images of known classes; NaN if there are none.

    With k predictions per image (n x k instead of n), one of them must be right: top-k.
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
    test images does not count, nor does an image without a label (-1); NaN if nothing is left.
    """
    judged = np.asarray(labels) >= 0
    if not judged.any():
        return float("nan")
    labels = np.minimum(np.asarray(labels)[judged], num_known)
    predictions = np.minimum(np.asarray(predictions)[judged], num_known)
    recalls = [np.mean(predictions[labels == one] == one) for one in np.unique(labels)]
    return float(np.mean(recalls))


def auroc(is_inlier: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve, inliers positive, ties averaged; NaN unless both kinds exist."""
    if is_inlier.all() or not is_inlier.any():
        return float("nan")
    if not np.isfinite(scores).all():
        raise ValueError("scores that are not finite have no rank")
    order = np.argsort(scores, kind="stable")[::-1]
    ranked, inliers = scores[order], is_inlier[order].astype(np.float64)
    last_of_ties = np.r_[np.flatnonzero(np.diff(ranked)), len(ranked) - 1]
    true = np.cumsum(inliers)[last_of_ties]
    false = 1.0 + last_of_ties - true
    if len(true) > 2:  # inner points of a straight line add nothing but rounding
        bends = np.r_[True, np.logical_or(np.diff(false, 2), np.diff(true, 2)), True]
        true, false = true[bends], false[bends]
    true, false = np.r_[0.0, true], np.r_[0.0, false]
    return float(np.trapezoid(true / true[-1], false / false[-1]))


def rates(is_inlier: np.ndarray, accepted: np.ndarray) -> tuple[float, float]:
    """Inlier recall (accepted inliers) and outlier rejection (rejected outliers)."""
    recall = float(np.mean(accepted[is_inlier])) if is_inlier.any() else float("nan")
    rejection = float(np.mean(~accepted[~is_inlier])) if (~is_inlier).any() else float("nan")
    return recall, rejection
