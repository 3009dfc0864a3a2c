"""What holds for every method: named terms, rules, training, resuming, no waiting."""

import copy

import pytest
import torch
from plain import is_same
from toy_runs import (
    BATCH,
    DISTINCT,
    METHODS,
    MU,
    STEPS_PER_EPOCH,
    Toy,
    clock,
    every_tensor,
    toy_run,
)

from dac.models.ema import Ema
from dac.training.loop import make_optimizer
from dac.training.meter import Meter

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
DIVERSIFY = ("heads_supervised", "heads_unlabeled", "mutual_information")
DAC = {"supervised", *DIVERSIFY}
UNLABELED = {"supervised", "unlabeled"}
OPENMATCH = {"supervised", "detectors", "entropy", "consistency"}
OSP, PRUNED = (
    {"supervised", "matching", "rotation"},
    {"unlabeled", "match_entropy", "labeled_agreement"},
)
UAGREG = UNLABELED | {"open_supervised", "outliers", "graph"}
PER_SAMPLE = ("unlabeled", "graph", "instances", "entropy", "consistency", "seen", "unseen")
PER_SAMPLE += ("open_set", "pseudo_negatives")
RULES = {"published", "memory", "memory_upper", "kept"}
U = BATCH * MU

# --- which terms there are ----------------------------------------------------------------------

TERMS = {  # method -> before and after the warm-up
    "labeled-only": ({"supervised"}, {"supervised"}),
    "fixmatch": (UNLABELED, UNLABELED),
    "fixmatch-released": (UNLABELED, UNLABELED),
    "fixmatch-control": ({"supervised"}, UNLABELED),
    "fixmatch-control-released": ({"supervised"}, UNLABELED),
    "mixmatch": (UNLABELED, UNLABELED),
    "mixmatch-released": (UNLABELED, UNLABELED),
    "comatch": (UNLABELED | {"graph"}, UNLABELED | {"graph"}),
    "comatch-released": (UNLABELED | {"graph"}, UNLABELED | {"graph"}),
    "simmatch": (UNLABELED, UNLABELED | {"instances"}),
    "simmatch-released": (UNLABELED, UNLABELED | {"instances"}),
    "softmatch": (UNLABELED, UNLABELED),
    "softmatch-released": (UNLABELED, UNLABELED),
    "mtcf": ({"inliers"}, UNLABELED | {"inliers"}),
    "openmatch": (OPENMATCH, OPENMATCH | {"unlabeled"}),
    "safe-student": ({"supervised"}, {"supervised", "seen", "unseen"}),
    "osp": (OSP, OSP | PRUNED),
    "osp-released": (OSP, OSP | PRUNED),
    "ssb": (UNLABELED, UNLABELED | OPENMATCH | {"pseudo_negatives"}),
    "iomatch": (UNLABELED | {"detectors"}, UNLABELED | {"detectors", "open_set"}),
    "iomatch-aligned": (UNLABELED | {"detectors"}, UNLABELED | {"detectors", "open_set"}),
    "uagreg": (UAGREG, UAGREG),
    "uagreg-original": (UAGREG, UAGREG),
    "mixmatch+dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "simmatch+dac": (DAC, DAC | {"unlabeled", "instances", "distillation"}),
    "softmatch+dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-released": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-heads": (
        DAC - {"mutual_information"},
        DAC - {"mutual_information"} | {"unlabeled"},
    ),
    "dac-heads-mi": (DAC, DAC | {"unlabeled"}),
    "dac-heads-mi-kd": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-heads-mi-rejection": (DAC, DAC | {"unlabeled"}),
}


def test_every_method_of_params_yaml_has_its_terms_written_down() -> None:
    assert set(TERMS) == set(METHODS)


@pytest.mark.parametrize("method", TERMS)
def test_terms_are_those_of_the_method_before_and_after_warm_up_one_value_per_sample_or_scalars(
    method: str,
) -> None:
    toy, (before, after) = Toy(toy_run(method)), TERMS[method]
    assert set(toy.terms(0)) == set(toy.terms(AFTER - 1)) == before
    found = toy.terms(AFTER)
    assert set(found) == after
    rows = 2 * U if "mixmatch" in method or method == "mtcf" else U  # both views are mixed
    names = [name for name in PER_SAMPLE if not method.startswith("osp")]  # OSP divides by its own
    for name, term in found.items():
        if name != "match_entropy":
            assert term.shape == ((rows,) if name in names else ())


@pytest.mark.parametrize("method", METHODS)
def test_rules_have_known_names_a_published_one_and_either_a_threshold_or_a_function(
    method: str,
) -> None:
    toy = Toy(toy_run(method))
    rules = toy.method.rules()
    assert "published" in rules and rules.keys() <= RULES
    with torch.no_grad():
        features = toy.network.encode(toy.pool[:9], frozen=True)
        scores = toy.method.score(features)
        assert scores.shape == (9,) and scores.isfinite().all()
        for name, rule in rules.items():
            assert (rule.threshold is None) != (rule.accepts is None), name
            if rule.threshold is not None:
                assert rule.threshold(scores, scores).shape == (), name
            else:
                accepted = rule.accepts(features, torch.arange(9))
                assert accepted.shape == (9,) and accepted.dtype == torch.bool, name


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_loss_and_goes_on_exactly_from_a_copy_of_its_state(method: str) -> None:
    whole, resumed = Toy(toy_run(method)), Toy(toy_run(method))
    totals = [sum(whole.step(step).values()) for step in range(AFTER, AFTER + 19)]
    assert sum(totals[-5:]) < 0.9 * sum(totals[:5])
    resumed.network.load_state_dict(whole.network.state_dict())
    resumed.optimizer.load_state_dict(copy.deepcopy(whole.optimizer.state_dict()))
    resumed.ema.load_state_dict(whole.ema.state_dict())
    resumed.draw.set_state(whole.draw.get_state())
    for name, stream in resumed.streams.items():
        stream.set_state(whole.streams[name].get_state())
    for step in range(AFTER + 19, AFTER + 21):  # the second begins an epoch
        assert whole.step(step) == resumed.step(step)
    left, right = (
        {**toy.network.state_dict(), **{f"ema {k}": v for k, v in toy.ema.average.items()}}
        for toy in (whole, resumed)
    )
    assert is_same(left, right)


@pytest.mark.parametrize("method", DISTINCT)
def test_a_step_copies_nothing_to_the_host(method: str) -> None:
    # The meta device has shapes but no values: whatever asks for a number fails there, exactly
    # where a GPU would have to stop and wait.
    toy = Toy(toy_run(method))
    batches = {
        step: every_tensor(toy.batch(step), lambda tensor: tensor.to("meta")) for step in (0, AFTER)
    }
    network = toy.network.to("meta")
    optimizer, ema, meter = make_optimizer(network, toy.run.train), Ema(network, 0.9), Meter()
    for step, batch in batches.items():
        terms = {name: term.mean() for name, term in network.terms(batch, clock(step), ema).items()}
        if step == AFTER:  # which has every term that a warm-up has
            torch.stack(list(terms.values())).sum().backward()
            optimizer.step()
        ema.update()
        network.finish_step()
        meter.add(step, terms)
