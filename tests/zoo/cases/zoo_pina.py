# ruff: noqa: RUF012 - as the page of the package has it
import torch
from pina import Condition, Trainer
from pina.domain import CartesianDomain
from pina.equation import Equation, FixedValue
from pina.model import FeedForward
from pina.operator import grad
from pina.optim import TorchOptimizer
from pina.problem import SpatialProblem
from pina.solver import PINN


class ODE(SpatialProblem):
    output_variables = ["u"]
    spatial_domain = CartesianDomain({"x": [0, 1]})
    domains = {"x0": CartesianDomain({"x": 0.0}), "D": CartesianDomain({"x": [0, 1]})}
    conditions = {
        "x0": Condition(domain="x0", equation=FixedValue(1.0)),
        "D": Condition(domain="D", equation=Equation(lambda i, o: grad(o, i) - o)),
    }


def solver(lr=0.001):
    problem = ODE()
    problem.discretise_domain(n=40, mode="grid")
    return PINN(problem, FeedForward(1, 1), TorchOptimizer(torch.optim.Adam, lr=lr))


def data():
    return Trainer(solver(), batch_size=8, max_epochs=2, accelerator="cpu").data_module


def model(lr):
    return solver(lr)
