import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal


def regression(x, y):
    weights = numpyro.sample("w", dist.Normal(jnp.zeros(6), 1.0).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y[:, 0])


def svi(lr):
    return SVI(regression, AutoNormal(regression), numpyro.optim.Adam(lr), Trace_ELBO())


def init(key, lr):
    return svi(lr).init(key, jnp.zeros((8, 6)), jnp.zeros((8, 1)))


def step(state, batch, lr):
    made = svi(lr)
    made.init(state.rng_key, *batch)
    state, loss = made.update(state, *batch)
    return state, {"loss": loss}
