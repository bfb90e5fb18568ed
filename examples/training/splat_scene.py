"""Train a scene of Gaussians on images of a small synthetic one, from a noisy cloud of points.

python examples/training/splat_scene.py [--steps 400] [--ply scene.ply]

The images come from a scene that the training does not see, by cameras on a circle; one camera is
kept for the test, and the peak signal-to-noise ratio of its image is printed.
"""

import argparse

import numpy as np

import rlx
from rlx import splat

WIDTH, HEIGHT, FOCAL = 64, 48, 58.0


def looking(angle: float) -> np.ndarray:
    """The view of a camera on a circle of radius 4 around the origin, a little above it."""
    position = np.array([4 * np.sin(angle), -0.8, -4 * np.cos(angle)])
    ahead = -position / np.linalg.norm(position)
    right = np.cross([0.0, 1.0, 0.0], ahead)
    right /= np.linalg.norm(right)
    turn = np.stack([right, np.cross(ahead, right), ahead])
    view = np.eye(4, dtype=np.float32)
    view[:3, :3], view[:3, 3] = turn, -turn @ position
    return view


def ball(count: int, rng: np.random.Generator) -> splat.Scene:
    """Points in a colored ball: what is to be learnt."""
    means = rng.standard_normal((count, 3))
    means *= rng.uniform(0.3, 1, (count, 1)) / np.linalg.norm(means, axis=1, keepdims=True)
    colors = np.clip(0.5 + 0.5 * means, 0, 1)
    scales = np.log(rng.uniform(0.08, 0.25, (count, 3)))
    return splat.Scene(means, scales, rng.standard_normal((count, 4)), np.full(count, 2.0), colors)


def render(g: rlx.Graph, values: list[rlx.Value], view: rlx.Value) -> rlx.Value:
    """The image on white."""
    camera = splat.Camera(view, FOCAL, FOCAL, WIDTH / 2, HEIGHT / 2, WIDTH, HEIGHT)
    means, scales, rotations, logits, colors = values
    return splat.render(means, scales, rotations, logits, colors, camera, background=[1, 1, 1])[0]


def images(scene: splat.Scene, views: list[np.ndarray]) -> list[np.ndarray]:
    """What cameras see of a scene."""
    g = rlx.Graph("images")
    values = [g.input(name, a.shape) for name, a in scene.arrays().items()]
    g.set_outputs([render(g, values, g.input("view", [4, 4]))])
    f = rlx.Session("cpu").compile(g)
    return [f.run({**scene.arrays(), "view": v})[0] for v in views]


def main() -> None:
    """Train, and print the ratio before and after, of the images trained on and of the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--ply", help="write the trained scene to this file")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    truth = ball(150, rng)
    views = [looking(a) for a in np.linspace(0, 2 * np.pi, 13)[:-1]]
    wanted = images(truth, views)

    noisy = truth.means + 0.1 * rng.standard_normal(truth.means.shape)
    start = splat.scene_of_points(noisy, np.full(noisy.shape, 128, np.uint8), opacity=0.5)
    g = rlx.Graph("scene")
    values = [g.param(name, value=a) for name, a in start.arrays().items()]
    image = render(g, values, g.input("view", [4, 4]))
    g.set_outputs([(image - g.input("image", [HEIGHT, WIDTH, 3])).abs().mean()])
    step = rlx.compile_training(g, rlx.optim.Adam(lr=0.02))
    order = rng.integers(1, len(views), args.steps)  # the first is kept for the test
    for i in order:
        step({"view": views[i], "image": wanted[i]})

    trained = splat.Scene(**step.params())
    for name, scene in (("before", start), ("after", trained)):
        found = images(scene, views)
        ratios = [splat.agreement(a, b).psnr for a, b in zip(found, wanted, strict=True)]
        print(
            f"{name}: trained views {np.mean(ratios[1:]):.2f} dB, the test view {ratios[0]:.2f} dB"
        )
    if args.ply:
        splat.write_ply(args.ply, trained)


if __name__ == "__main__":
    main()
