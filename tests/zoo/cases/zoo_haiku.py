import haiku as hk
import jax
import jax.numpy as jnp
import optax

NET = hk.transform_with_state(
    lambda x: hk.Linear(2)(hk.BatchNorm(True, True, 0.9)(hk.nets.MLP([16])(x), is_training=True))
)


def init(key, lr):
    weights, state = NET.init(key, jnp.zeros((2, 6)))
    return weights, state, optax.adam(lr).init(weights)


def step(everything, batch, key, lr):
    weights, state, moments = everything

    def loss_of(weights):
        scores, after = NET.apply(weights, state, key, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch[1]).mean(), after

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
    updates, moments = optax.adam(lr).update(gradients, moments)
    return (optax.apply_updates(weights, updates), state, moments), {"loss": loss}
