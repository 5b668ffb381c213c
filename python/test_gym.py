"""Tests of the package. `tests/it/gym.rs` runs them: `$(cargo xtask gym) -m unittest python/test_gym.py`."""

import unittest
import warnings

import edgeward_gym
import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

STAY = {"clusters": 3, "mode": "stay", "observation": "fresh", "reward": "cost", "distinct_padding": True}
PLACEMENT = "edgeward/Placement-v0"


class GymTest(unittest.TestCase):
    def test_environments_pass_gymnasium_checks(self):
        for settings in [{}, STAY, {"clusters": 128, "reward": "binpack", "scaled": True}]:
            with self.subTest(settings), warnings.catch_warnings():
                warnings.simplefilter("error")
                check_env(gymnasium.make(PLACEMENT, **settings).unwrapped)

    def test_vector_environment_equals_single_ones(self):
        vector = gymnasium.make_vec(PLACEMENT, num_envs=3, **STAY)
        self.assertIsInstance(vector, edgeward_gym.PlacementVectorEnv)
        singles = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make(PLACEMENT, **STAY)] * 3, autoreset_mode=vector.metadata["autoreset_mode"]
        )
        draws = np.random.default_rng(1)
        for begin in [{"seed": 42}, {"seed": [7, 7, 2**64 - 1]}, {}]:
            found, expected = vector.reset(**begin), singles.reset(**begin)
            np.testing.assert_equal(found, expected)
            ends = 0
            for _ in range(250):
                actions = [draws.choice(np.flatnonzero(mask)) for mask in found[-1]["action_mask"]]
                found, expected = vector.step(np.array(actions)), singles.step(np.array(actions))
                for infos in (found[-1], expected[-1]):
                    # NumPy does not compare arrays of arrays.
                    infos["final_obs"] = list(infos.get("final_obs", []))
                np.testing.assert_equal(found, expected)
                self.assertIn(found[0], vector.observation_space)
                ends += found[2].sum()
            self.assertEqual(ends, 6)

    def test_policy_earns_what_it_earns_in_the_lab(self):
        """Resource-Greedy, by the numbers that it sees. The row is in crates/lab/src/gym/tests.rs."""
        environment = edgeward_gym.PlacementEnv(observation="fresh", reward="cost")
        episodes, total = [], 0
        observation, info = environment.reset(seed=42)
        while len(episodes) < 100:
            masks = environment.action_masks()
            np.testing.assert_array_equal(masks, info["action_mask"])
            clusters = observation[:-2]
            is_candidate = masks[:-2] & (clusters[:, 4] <= clusters[:, 8])
            used = np.where(is_candidate, clusters[:, 0] + clusters[:, 2], np.inf)
            action = np.argmin(used) if is_candidate.any() else len(masks) - 1
            observation, reward, ended, truncated, info = environment.step(action)
            self.assertFalse(truncated)
            total += reward
            if ended:
                episodes.append([total, info["rejected_percent"], info["cost"], info["latency_ms"]])
                observation, info = environment.reset()
                total = 0
        np.testing.assert_array_equal(np.mean(episodes, 0).round(2), [952.93, 2.68, 6.19, 31.13])

    def test_cluster_without_room_rejects_the_request(self):
        environment = edgeward_gym.PlacementEnv()
        _, info = environment.reset(seed=42)
        self.assertEqual(info["action_mask"].tolist(), [1, 0, 1, 1, 1, 1])
        self.assertEqual(environment.step(1)[1], -1)

    def test_wrong_input_is_refused_by_name(self):
        environment = edgeward_gym.PlacementEnv()
        vector = edgeward_gym.PlacementVectorEnv(2)
        with self.assertRaisesRegex(ValueError, "step: no episode has begun, call reset first"):
            environment.step(0)
        environment.reset(seed=1)
        vector.reset()
        for message, refused in [
            ("action: 6 is not a number from 0 to 5", lambda: environment.step(6)),
            ("action: -1 is not a number from 0 to 5", lambda: environment.step(-1)),
            ("action: 6 is not a number from 0 to 5", lambda: vector.step([5, 6])),
            ("action: 1 values for 2 environments", lambda: vector.step([0])),
            ("seed: 3 values for 2 environments", lambda: vector.reset(seed=[1, 2, 3])),
            ("options: {'fast': 1}: the environment has none", lambda: environment.reset(options={"fast": 1})),
            ("clusters: 0 is not a number from 1 to 128", lambda: edgeward_gym.PlacementEnv(clusters=0)),
            ("scaled: 1 is neither true nor false", lambda: edgeward_gym.PlacementEnv(scaled=1)),
            ("size is not one of the fields clusters, mode", lambda: edgeward_gym.PlacementEnv(size=1)),
            ("num_envs: 0 is not above 0", lambda: edgeward_gym.PlacementVectorEnv(0)),
        ]:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                refused()
