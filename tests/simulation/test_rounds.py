"""The compiled rounds against the readable ones, and what must not change the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jaxtyping import Array

from headstart._simulation import Keys, Simulation
from headstart._simulation.layout import (
    AXIS,
    Layout,
    align,
    choose_layout,
    make_mesh,
    parse_layout,
    replicate,
)
from headstart._simulation.reference import run_rounds_slowly
from headstart._simulation.rounds import (
    NO_CLIENT,
    _sum_over_devices,
    _Sums,
    join_number,
    run_rounds,
    split_number,
)
from headstart._simulation.sampling import choose_clients
from headstart.algorithms import Algorithm, FedAvg, PerFedAvg
from headstart.errors import ConfigError, DivergedError
from headstart.trees import add, apply_weight

ROUNDS, ACTIVE = 4, 3
grid = pytest.mark.parametrize("algorithm", tiny.variants())


def simulation(algorithm: Algorithm, seed: int = 0) -> Simulation:
    return Simulation(tiny.federation(), tiny.MODEL, algorithm, participation=0.6, seed=seed)


def programs() -> int:
    """How many programs the engine has compiled so far."""
    return run_rounds._cache_size()  # type: ignore[attr-defined]


@grid
def test_engines_agree_and_cutting_changes_nothing(algorithm: Algorithm) -> None:
    """Float tolerance between the engines; to the bit between one piece and several."""
    engine = simulation(algorithm)
    assert engine.active == ACTIVE
    whole = engine.advance(engine.start(), ROUNDS)
    state, memories = run_rounds_slowly(
        algorithm,
        tiny.MODEL.init(engine.keys.init, engine.data.schema),
        engine.federation,
        engine.keys,
        rounds=ROUNDS,
        active=ACTIVE,
    )
    assert tiny.distance(whole.state, state) < 1e-5
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories)
    assert tiny.distance(whole.memory, stacked) < 1e-5

    pieces = engine.start()
    for count in (1, 2, 1):
        pieces = engine.advance(pieces, count)
    assert tiny.identical(pieces[:3], whole[:3])
    assert pieces.losses.tolist() == whole.losses.tolist()


@pytest.mark.parametrize("devices, layout", [(1, "mapped"), (1, "vmapped:3"), (2, "mapped:2")])
@pytest.mark.parametrize("name", ["per-fedavg-options", "apfl"])
def test_layouts_change_the_result_by_rounding_only(name: str, devices: int, layout: str) -> None:
    """Five clients of five: on two devices one place is padding."""
    algorithm, mesh = tiny.VARIANTS[name], make_mesh(jax.devices()[:devices])
    data = tiny.federation()
    engine = Simulation(data, tiny.MODEL, algorithm, layout=parse_layout(layout, mesh))
    other = Simulation(data, tiny.MODEL, algorithm, layout="vmapped")
    assert (engine.layout.devices, other.layout.devices) == (devices, 2)
    end, end_of_other = (each.advance(each.start(), ROUNDS) for each in (engine, other))
    assert tiny.distance(local(end[1:3]), local(end_of_other[1:3])) < 1e-5
    np.testing.assert_allclose(end.losses, end_of_other.losses, atol=1e-6)
    scores = engine.evaluate(end, [0, 2], most=3)
    same = other.evaluate(end_of_other, [0, 2], most=3)
    np.testing.assert_allclose(scores.loss, same.loss, atol=1e-5)


def local(tree: Any) -> Any:
    """On the first device, wherever it was computed."""
    return jax.tree.map(np.asarray, tree)


def test_a_layout_is_chosen_by_size_and_can_be_named() -> None:
    mesh = make_mesh()
    assert choose_layout(mesh, parameters=3_000, batch=10).style == "vmapped"
    assert choose_layout(mesh, parameters=68_000, batch=40) == parse_layout("mapped", mesh)
    assert parse_layout("vmapped:7", mesh).group == 7
    for wrong in ("sideways", "mapped:0", "vmapped:x", "mapped:-1", ""):
        with pytest.raises(ConfigError, match="use mapped, vmapped"):
            parse_layout(wrong, mesh)


def test_step_sizes_seeds_and_piece_lengths_do_not_compile_again() -> None:
    engine = simulation(FedAvg(**tiny.COMMON))
    engine.advance(engine.start(), 2)
    compiled = programs()
    for seed, rate in ((1, 0.3), (2, 0.01)):
        other = simulation(FedAvg(**{**tiny.COMMON, "local_lr": rate, "inner_lr": rate}), seed)
        other.advance(other.start(), 3)
    assert programs() == compiled


def test_more_rounds_than_one_call_records() -> None:
    engine = simulation(FedAvg(**tiny.COMMON))
    end = engine.advance(engine.start(), 300)
    assert end.round == 300 and len(end.losses) == 300
    assert int(end.state.round) == 300
    assert end.losses[-20:].mean() < end.losses[:20].mean()


def test_divergence_names_round_and_client_and_keeps_the_good_state() -> None:
    """Client 2's examples are huge, so its first update overflows; nobody else's does."""
    data = tiny.federation()
    start = int(data.offsets[2])
    data.x[start : start + int(data.train_counts[2])] *= 1e38
    engine = Simulation(data, tiny.MODEL, FedAvg(**tiny.COMMON), participation=0.4, seed=1)
    progress = engine.start()
    with pytest.raises(DivergedError, match=r"round \d+ at client 2: .*local_lr=0.01") as caught:
        for _ in range(50):
            progress = engine.advance(progress, 1)
    assert caught.value.client == "2"
    assert caught.value.round == progress.round + 1
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(progress.state.params))


@pytest.mark.parametrize("layout", ["mapped", "vmapped:16"])
def test_of_several_clients_that_diverge_the_lowest_is_named(layout: str) -> None:
    """Also where clients that did not diverge are computed in the same group."""
    data = tiny.federation()
    for client in (1, 4):
        start = int(data.offsets[client])
        data.x[start : start + int(data.train_counts[client])] *= 1e38
    algorithm, mesh = FedAvg(**tiny.COMMON), make_mesh(jax.devices()[:1])
    engine = Simulation(data, tiny.MODEL, algorithm, layout=parse_layout(layout, mesh))
    with pytest.raises(DivergedError, match="round 1 at client 1:"):
        engine.advance(engine.start(), 1)


def test_client_numbers_up_to_the_largest_survive_as_floats() -> None:
    """Every bit alone, all bits, and the neighbours of 2**16, 2**24 and 2**31."""
    edges = [edge + d for edge in (2**16, 2**24, 2**31) for d in (-2, -1, 0, 1)]
    numbers = [0, *(2**bit for bit in range(31)), *(n for n in edges if n < 2**31)]
    halves = jax.jit(split_number)(jnp.array(numbers, jnp.int32))
    assert halves.dtype == jnp.float32
    assert jax.jit(join_number)(halves).tolist() == numbers


@pytest.mark.parametrize(
    "numbers", [(NO_CLIENT, 2**31 - 2), (2**31 - 3, 2**31 - 2), (2**24 + 1, 2**24), (NO_CLIENT, 0)]
)
def test_the_lowest_bad_client_of_all_devices_is_found(numbers: tuple[int, int]) -> None:
    layout = Layout(make_mesh(jax.devices()[:2]))

    def program(numbers: Array) -> tuple[Array, Array]:
        own = numbers[jax.lax.axis_index(AXIS)]
        sums = _sum_over_devices(_Sums(jnp.ones(3), jnp.array(0.5), {}, {}, own), layout)
        return sums.bad_client, sums.weight

    bad, weight = jax.jit(layout.on_all_devices(program))(jnp.array(numbers, jnp.int32))
    assert (int(bad), float(weight)) == (min(numbers), 1.0)


def test_a_batch_larger_than_any_client_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch_size=99 .* largest has 14 training"):
        simulation(PerFedAvg(batch_size=(5, 5, 99)))
    with pytest.raises(ConfigError, match=r"batch_size=15 "):
        simulation(PerFedAvg(batch_size=(5, 5, 15)))
    assert simulation(PerFedAvg(batch_size=(5, 5, 14))).algorithm.largest_batch == 14


def test_weights_by_examples_are_the_weighted_mean() -> None:
    """Two clients, one round, against the mean by hand."""
    data = tiny.federation(clients=2, new_clients=0)
    algorithm = FedAvg(**tiny.COMMON, weights="examples")
    engine = Simulation(data, tiny.MODEL, algorithm)
    start = engine.start()
    end = engine.advance(start, 1)
    sent = algorithm.broadcast(start.state, engine.keys.broadcast(0))
    replies = [
        jax.jit(algorithm.client_update)(
            sent, (), engine.federation.training_task(jnp.int32(i)), engine.keys.client(0, i)
        )[0].update
        for i in range(2)
    ]
    w0, w1 = data.train_counts / data.train_counts.sum()
    mean = jax.tree.map(lambda a, b: w0 * a + w1 * b, *replies)
    assert tiny.distance(end.state.params, add(start.state.params, mean)) < 1e-6


def test_gradients_are_counted_by_who_took_part() -> None:
    """With epochs a larger client costs more: counted from the rounds' own draws."""
    data = tiny.federation()
    algorithm = FedAvg(**tiny.COMMON, local_epochs=3)
    engine = Simulation(data, tiny.MODEL, algorithm, participation=0.4)
    expected = 0
    for number in range(40):
        assert engine.gradient_evaluations(number) == expected
        chosen = choose_clients(engine.keys.sampling(number), 5, 2)
        expected += sum(3 * -(-int(data.train_counts[c]) // 5) for c in chosen.tolist())


@pytest.mark.parametrize("epochs, each", [(None, [3] * 5), (1, [2, 2, 2, 3, 3])])
def test_gradients_of_a_client_are_the_mean_over_the_known_ones(
    epochs: int | None, each: list[int]
) -> None:
    """Known clients have 6, 8, 10, 12 and 14 examples, a batch 5; a whole number is an integer."""
    engine = simulation(FedAvg(**tiny.COMMON, local_epochs=epochs))
    mean = engine.gradients_per_client
    assert mean == sum(each) / 5
    assert isinstance(mean, int if epochs is None else float)


def test_what_clients_and_server_report_is_logged() -> None:
    engine = Simulation(tiny.federation(), tiny.MODEL, FedAvg(**tiny.COMMON))
    end = engine.advance(engine.advance(engine.start(), 3), 2)
    assert set(end.log) == {"clients.loss", "server.update_norm"}
    assert all(values.shape == (5,) and (values > 0).all() for values in end.log.values())


def test_padding_is_silent_even_if_it_is_not_a_number() -> None:
    assert apply_weight(jnp.array(jnp.nan), jnp.array(0.0)) == 0.0
    assert apply_weight(jnp.array(1.5), jnp.array(2.0)) == 3.0


@pytest.mark.parametrize("clients, group", [(1, 1), (5, 2), (6, 16), (7, 3)])
def test_every_client_is_dealt_to_one_device(clients: int, group: int) -> None:
    layout = Layout(make_mesh(), "vmapped", group)

    def program(clients: Array) -> tuple[Array, Array]:
        share = layout.take_share(clients, padding=99)
        assert share.shape[1] <= group
        return layout.gather(share, len(clients)), jax.lax.psum(jnp.sum(share < 99), AXIS)

    dealt, count = jax.jit(layout.on_all_devices(program))(jnp.arange(clients))
    assert dealt.tolist() == list(range(clients)) and int(count) == clients


def test_mapped_files_are_used_where_they_lie_and_others_copied_once(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5000.0, dtype=np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert align(mapped).ctypes.data == mapped.ctypes.data
    own = np.arange(5000.0, dtype=np.float32)
    copy = align(own)
    own[:] = 0
    for array in (align(mapped), copy):
        placed = replicate(make_mesh(), array)
        places = {part.data.unsafe_buffer_pointer() for part in placed.addressable_shards}
        assert places == {array.ctypes.data}
        assert float(placed[-1]) == 4999.0


def test_float64_runs_in_float64(x64: None) -> None:
    data = tiny.federation()
    algorithm = PerFedAvg(**tiny.COMMON)
    engine = Simulation(data, tiny.MODEL, algorithm, seed=0)
    end = engine.advance(engine.start(), 2)
    assert {leaf.dtype for leaf in jax.tree.leaves(end.state.params)} == {np.dtype("float64")}


def test_keys_of_different_uses_differ() -> None:
    keys = Keys.from_seed(0)
    assert len({jax.random.key_data(k).tobytes() for k in keys}) == len(keys)


@pytest.mark.parametrize(
    "clients, group, shape",
    [(7, 4, (1, 4)), (8, 4, (1, 4)), (9, 4, (2, 3)), (3, 16, (1, 2)), (1, 1, (1, 1))],
)
def test_clients_are_dealt_with_as_little_padding_as_possible(
    clients: int, group: int, shape: tuple[int, int]
) -> None:
    """⌈clients / devices⌉ for each of two devices, in equal groups of at most ``group``."""
    layout = Layout(make_mesh(jax.devices()[:2]), "vmapped", group)

    def shares(numbers: Array) -> Array:
        share = layout.take_share(numbers, padding=-1)
        assert share.shape == shape
        return layout.gather(share, 2 * shape[0] * shape[1])

    dealt = np.asarray(jax.jit(layout.on_all_devices(shares))(jnp.arange(clients)))
    np.testing.assert_array_equal(dealt[:clients], np.arange(clients))
    assert (dealt[clients:] == -1).all()
