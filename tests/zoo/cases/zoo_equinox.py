import equinox as eqx
import jax
import optax


def init(key, lr):
    model = eqx.nn.MLP(6, 2, 16, 2, key=key)
    return model, optax.adam(lr).init(eqx.filter(model, eqx.is_array))


@eqx.filter_value_and_grad
def loss_of(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


def step(state, batch, lr):
    model, moments = state
    loss, gradients = loss_of(model, *batch)
    updates, moments = optax.adam(lr).update(gradients, moments)
    return (eqx.apply_updates(model, updates), moments), {"loss": loss}
