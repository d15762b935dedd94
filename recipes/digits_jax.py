"""JAX: where the data come from, and the functions that make, train and measure."""

import jax
import optax
from sklearn.datasets import load_digits


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels from 0 to 16, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images.astype("float32") / 16, "label": digits.target.astype("int32")}


def init(key, lr, width):
    params = {"first": jax.random.normal(key, (64, width)) / 8, "last": jax.numpy.zeros((width, 10))}
    return params, optax.adamw(lr).init(params)


def measure(params, batch):
    logits = jax.nn.relu(batch[0].reshape(-1, 64) @ params["first"]) @ params["last"]
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()
    return loss, {"loss": loss, "accuracy": (logits.argmax(1) == batch[1]).mean()}


def step(state, batch, lr):
    params, moments = state
    gradients, metrics = jax.grad(measure, has_aux=True)(params, batch)
    updates, moments = optax.adamw(lr).update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), metrics


def evaluate(state, batch):
    return measure(state[0], batch)[1]
