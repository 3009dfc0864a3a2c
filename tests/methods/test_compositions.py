"""DAC around another objective (Table 4): what stays the objective's, what stays DAC's."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_runs import BATCH, MU, NUM_KNOWN, PARAMS, STEPS_PER_EPOCH, Toy, toy_run

from dac.config import Run
from dac.consensus import consensus
from dac.methods.parts.alignment import align
from dac.methods.parts.mixup import draw_mix
from dac.methods.step import Batch
from dac.otsu import otsu_threshold

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
U = BATCH * MU
IN_TABLE_4 = ("softmatch", "simmatch", "mixmatch")
OBJECTIVES = (*IN_TABLE_4, "comatch")  # the paper has no CoMatch with DAC; it works all the same
EVERY_OBJECTIVE = pytest.mark.parametrize("objective", OBJECTIVES)
DIVERSIFY = {"heads_supervised", "heads_unlabeled", "mutual_information"}
UNLABELED = {  # terms with one value per unlabeled row
    "softmatch": {"unlabeled"},
    "simmatch": {"unlabeled", "instances"},
    "mixmatch": {"unlabeled"},
    "comatch": {"unlabeled", "graph"},
}
ACTIVE = {  # every sample and edge counts from the start; queues small enough to wrap
    "softmatch": {},
    "simmatch": {"tau": 0.3, "alignment_batches": 3},
    "mixmatch": {"rampup": 0.1},
    "comatch": {"tau": 0.3, "graph_tau": 0.3, "alignment_batches": 3, "queue_batches": 2},
}


def composed(objective: str, **of_dac: Any) -> Run:
    """DAC on an objective of params.yaml, also on those that no entry there puts it on."""
    run = toy_run("dac", num_heads=3, **of_dac)
    settings = toy_run(objective, labeled_views=run.method.labeled_views, **ACTIVE[objective])
    return dataclasses.replace(run, method=run.method.around(settings.method))


def pair(objective: str, **of_dac: Any) -> tuple[Toy, Toy]:
    """DAC on an objective and the objective alone, with the same weights, memory and draws."""
    toy = Toy(composed(objective, **of_dac))
    shared = toy.run.method.model_dump(include={"labeled_views", "feature_layernorm"})
    plain = Toy(toy_run(objective, **ACTIVE[objective], **shared))
    plain.network.backbone.load_state_dict(toy.network.backbone.state_dict())
    plain.method.load_state_dict(toy.method.objective.state_dict())
    if objective == "mixmatch":
        plain.method.generator.set_state(toy.method.objective.generator.get_state())
    return toy, plain


def train(toy: Toy, step: int, batch: Batch) -> dict[str, Tensor]:
    terms = toy.terms(step, batch)
    toy.optimizer.zero_grad()
    torch.stack([term.mean() for term in terms.values()]).sum().backward()
    toy.optimizer.step()
    toy.ema.update()
    toy.network.finish_step()
    return {name: term.detach() for name, term in terms.items()}


def scored(toy: Toy) -> None:
    """Scores of all pool items, spread so that some are rejected by half and some hardly."""
    draw = torch.Generator().manual_seed(5)
    memory = toy.method.memory
    memory.score.copy_(torch.rand(memory.score.shape, generator=draw))
    memory.consensus.copy_(torch.rand(memory.score.shape, generator=draw))
    memory.visited.fill_(True)


# --- settings -----------------------------------------------------------------------------------

ONE_TASK_PER_DATA = {task.data: name for name, task in PARAMS.file.tasks.items()}


@pytest.mark.parametrize("task", ONE_TASK_PER_DATA.values(), ids=ONE_TASK_PER_DATA)
@pytest.mark.parametrize("entry", [*(f"{name}+dac" for name in IN_TABLE_4), "dac-released"])
def test_objective_has_its_own_entrys_settings_with_the_views_of_dac(task: str, entry: str) -> None:
    run = PARAMS.run(task, entry, 1)
    alone = PARAMS.run(task, entry.removesuffix("+dac") if "+" in entry else "fixmatch", 1)
    own = {"labeled_views", "feature_layernorm"}
    assert run.objective is not None and type(run.objective) is type(alone.method)
    assert run.objective.model_dump(exclude=own) == alone.method.model_dump(exclude=own)
    assert run.objective.model_dump(include=own) == run.method.model_dump(include=own)
    assert (run.objective.labeled_views == 2) == (entry == "dac-released")


# --- the objective's terms ----------------------------------------------------------------------


@EVERY_OBJECTIVE
@pytest.mark.parametrize(("views", "layernorm"), [(1, False), (2, True)])
def test_with_weights_of_one_training_is_that_of_the_objective_alone(
    objective: str, views: int, layernorm: bool
) -> None:
    form = {"labeled_views": views, "feature_layernorm": layernorm}
    toy, plain = pair(objective, rejection=False, lambda_kd=0.0, **form)
    start = {name: p.detach().clone() for name, p in plain.network.named_parameters()}
    for step in range(AFTER, AFTER + 4):  # queues of two and three batches have wrapped by then
        batch = toy.batch()
        found, expected = train(toy, step, batch), train(plain, step, batch)
        assert found.keys() - DIVERSIFY == expected.keys() == {"supervised"} | UNLABELED[objective]
        for name in expected:
            assert torch.allclose(found[name], expected[name], rtol=1e-6, atol=1e-7), (step, name)
    encoder = dict(toy.network.backbone.named_parameters())
    for name, parameter in plain.network.backbone.named_parameters():
        assert torch.allclose(parameter, encoder[name], rtol=1e-5, atol=1e-7), name
        assert not torch.equal(parameter, start[f"backbone.{name}"])


@EVERY_OBJECTIVE
def test_every_unlabeled_term_is_multiplied_by_the_weight_of_its_sample(objective: str) -> None:
    toy, plain = pair(objective)
    scored(toy)
    batch, draws = toy.batch(), torch.Generator()
    if objective == "mixmatch":
        draws.set_state(plain.method.generator.get_state())
    found, expected = toy.terms(AFTER, batch), plain.terms(AFTER, batch)
    score, tau_open = toy.method.memory.score[batch.u_index], toy.method.tau_open
    omega = torch.tensor([min(1.0, float(s / tau_open) ** 1.5) for s in score])  # Eq. (13)
    assert 0.1 < (omega < 0.9).float().mean() < 0.9
    assert torch.equal(found["supervised"], expected["supervised"])
    if objective == "mixmatch":  # a mixed row weighs what is mixed in it
        mix = draw_mix(BATCH + 2 * U, plain.run.method.alpha, draws, torch.device("cpu"))
        weights = torch.cat([torch.ones(BATCH), omega, omega])
        rows = [
            mix.own * weights[i] + (1 - mix.own) * weights[j] for i, j in enumerate(mix.partner)
        ]
        omega = torch.stack(rows[BATCH:])
    for name in UNLABELED[objective]:
        assert expected[name].mean() > 0
        assert torch.allclose(found[name], omega * expected[name], rtol=1e-4, atol=1e-6), name


@EVERY_OBJECTIVE
def test_warm_up_has_the_supervised_term_only_and_moves_the_memory_all_the_same(
    objective: str,
) -> None:
    toy, plain = pair(objective)
    before = {name: buffer.clone() for name, buffer in plain.method.named_buffers()}
    batch = toy.batch()
    found, expected = train(toy, AFTER - 1, batch), train(plain, AFTER - 1, batch)
    assert found.keys() == {"supervised"} | DIVERSIFY
    assert torch.equal(found["supervised"], expected["supervised"])
    for name, buffer in plain.method.named_buffers():
        assert torch.equal(toy.method.objective.get_buffer(name), buffer), name
        assert not torch.equal(buffer, before[name]), name


@EVERY_OBJECTIVE
def test_what_the_objective_remembers_is_not_weighted(objective: str) -> None:
    toy, plain = pair(objective)
    scored(toy)
    batch = toy.batch()
    train(toy, AFTER, batch), train(plain, AFTER, batch)
    assert toy.method.tau_open > 0
    for name, buffer in plain.method.named_buffers():
        assert torch.equal(toy.method.objective.get_buffer(name), buffer), name


@EVERY_OBJECTIVE
def test_running_statistics_follow_the_one_forward_of_unmixed_views(objective: str) -> None:
    toy = Toy(composed(objective))
    batch, expected = toy.batch(), copy.deepcopy(toy.network)
    strong = batch.u_strong[: 2 if objective == "comatch" else 1]
    expected.encode(torch.cat([batch.x[0], batch.u_weak[0], *strong]))
    toy.terms(AFTER, batch)
    for name, buffer in expected.backbone.named_buffers():
        assert torch.equal(toy.network.backbone.get_buffer(name), buffer), name


# --- what stays DAC's ---------------------------------------------------------------------------


@EVERY_OBJECTIVE
def test_weights_of_samples_carry_no_gradient(objective: str) -> None:
    toy = Toy(composed(objective))
    scored(toy)
    weigh, omegas = toy.method.omega, []
    toy.method.omega = lambda *given: omegas.append(weigh(*given)) or omegas[-1]
    terms = toy.terms(AFTER)
    (omega,) = omegas
    assert not omega.requires_grad and (omega < 1).any()
    heads = [*toy.method.heads.parameters(), *toy.method.projection.parameters()]
    total = torch.stack([terms[name].sum() for name in UNLABELED[objective]]).sum()
    gradients = torch.autograd.grad(total, heads, allow_unused=True)
    assert all(gradient is None for gradient in gradients)


@EVERY_OBJECTIVE
def test_open_set_target_is_made_of_the_prediction_as_it_is(objective: str) -> None:
    toy = Toy(composed(objective))
    for step in range(AFTER, AFTER + 3):
        train(toy, step, toy.batch())
    batch = toy.batch()
    strong = batch.u_strong[: 2 if objective == "comatch" else 1]
    with torch.no_grad():
        features = toy.network.encode(torch.cat([batch.x[0], batch.u_weak[0], *strong]))
        p = toy.method.objective.head(features[BATCH : BATCH + U]).softmax(dim=1)
    toy.terms(AFTER, batch)
    s = toy.method.memory.score[batch.u_index][:, None]
    _, open_target = toy.method.bank.staged
    assert torch.allclose(open_target, torch.cat([p * s, 1 - s], dim=1), atol=1e-6)
    aligned = align(p, p.mean(dim=0)) * s
    assert (open_target[:, :-1] - aligned).abs().max() > 1e-3  # which would be another target


@EVERY_OBJECTIVE
def test_there_is_one_target_head_and_evaluation_is_that_of_dac(objective: str) -> None:
    toy = Toy(composed(objective))
    of_known = [
        module
        for module in toy.network.modules()
        if isinstance(module, nn.Linear) and module.out_features == NUM_KNOWN
    ]
    assert len(of_known) == 1 and of_known[0] is toy.method.objective.head
    assert {name for name, _ in toy.network.named_parameters() if ".head." in name} == {
        "method.objective.head.weight",
        "method.objective.head.bias",
    }
    toy.network.eval()
    with torch.no_grad():
        features = toy.network.encode(toy.pool)
        scores = toy.method.score(features)
        heads = toy.method.heads(toy.method.projection(features)).softmax(dim=2)
        assert torch.equal(toy.method.logits(features), of_known[0](features))
    assert torch.allclose(scores, consensus(heads, toy.run.method.score_form))
    published = toy.method.rules()["published"]
    assert torch.equal(published.threshold(scores, scores), otsu_threshold(scores))


def test_composition_that_has_no_entry_in_params_yaml_trains() -> None:
    """The others: tests/methods/test_every_method.py."""
    toy = Toy(composed("comatch"))
    totals = [sum(toy.step(step).values()) for step in range(AFTER, AFTER + 20)]
    assert sum(totals[-5:]) < 0.9 * sum(totals[:5])
