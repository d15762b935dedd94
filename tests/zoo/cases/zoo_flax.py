import optax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(6, 16, rngs=rngs), nnx.BatchNorm(16, rngs=rngs)
        self.drop, self.last = nnx.Dropout(0.1, rngs=rngs), nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


def init(key, lr):
    model = Net(nnx.Rngs(key))
    return model, nnx.Optimizer(model, optax.adam(lr), wrt=nnx.Param)


def step(model, optimizer, batch):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return {"loss": loss}
