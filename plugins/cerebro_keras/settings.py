"""Keras' settings of the process. The policy of dtypes is the session's, which each model begins anew."""

from __future__ import annotations

from keras import config

from cerebro_elastic.extending.tasks import process_settings
from cerebro_keras import _keras_internals as internals

SETTINGS = (
    process_settings.Setting("keras.config.set_floatx", config.floatx, config.set_floatx, carried=True),
    process_settings.Setting("keras.config.set_epsilon", config.epsilon, config.set_epsilon, carried=True),
    process_settings.Setting(
        "keras.config.set_image_data_format",
        config.image_data_format,
        config.set_image_data_format,
        carried=True,
    ),
    process_settings.Setting(
        "keras.config.set_dtype_policy", internals.dtype_policy, internals.put_dtype_policy
    ),
)
