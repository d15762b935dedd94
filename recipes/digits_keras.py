"""Keras: where the data come from, and the compiled model."""

import keras
from sklearn.datasets import load_digits


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels from 0 to 16, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images[..., None].astype("float32") / 16, "label": digits.target}


def model(lr, width, steps):
    net = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(width, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )
    net.compile(
        keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(lr, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return net
