"""JAX: where the data come from, and the functions. Fractions, such as `lr`, do not compile anew."""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels from 0 to 16, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images.astype("float32") / 16, "label": digits.target.astype("int32")}


def init(key, lr, width):
    first, last = jax.random.split(key)
    params = {
        "first": jax.nn.initializers.he_normal()(first, (64, width)),
        "last": jax.nn.initializers.he_normal()(last, (width, 10)),
    }
    return params, optax.adamw(lr).init(params)


def logits_of(params, image):
    return jax.nn.relu(image.reshape(len(image), -1) @ params["first"]) @ params["last"]


def loss_of(params, image, label):
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(params, image), label).mean()


def step(state, batch, lr):
    (params, moments), (image, label) = state, batch
    loss, gradients = jax.value_and_grad(loss_of)(params, image, label)
    updates, moments = optax.adamw(lr).update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), {"loss": loss}


def evaluate(state, batch):
    image, label = batch
    right = jnp.argmax(logits_of(state[0], image), 1) == label
    return {"loss": loss_of(state[0], image, label), "accuracy": right.mean()}
