# This package and a project in one image: in the checkout, docker build -t my-project .
# For GPUs begin with an image of CUDA and Python 3.11, such as one of pytorch/pytorch.
FROM python:3.11-slim
COPY . /project
WORKDIR /project
RUN pip install --no-cache-dir '.[lightning,examples,s3]'
CMD ["cerebro", "run", "recipes/digits.yaml"]
