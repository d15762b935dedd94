"""scikit-learn: where the data come from, and the pipeline."""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images.astype("uint8"), "label": digits.target}


def pipeline(alpha, penalty):
    return make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", alpha=alpha, penalty=penalty))
