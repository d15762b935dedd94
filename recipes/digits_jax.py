"""Handwritten digits from scikit-learn (1,797 images of 64 pixels), and a net with one hidden layer."""

import jax
import optax
from sklearn.datasets import load_digits


def load():
    image, label = load_digits(return_X_y=True)
    return {"image": image.astype("float32") / 16, "label": label.astype("int32")}


def init(key, lr, width):
    params = {"first": jax.random.normal(key, (64, width)) / 8, "last": jax.numpy.zeros((width, 10))}
    return params, optax.adamw(lr).init(params)


def measure(params, batch):
    logits = jax.nn.relu(batch[0] @ params["first"]) @ params["last"]
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()
    return loss, {"loss": loss, "accuracy": (logits.argmax(1) == batch[1]).mean()}


def step(state, batch, lr):
    params, moments = state
    gradients, metrics = jax.grad(measure, has_aux=True)(params, batch)
    updates, moments = optax.adamw(lr).update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), metrics


def evaluate(state, batch):
    return measure(state[0], batch)[1]
