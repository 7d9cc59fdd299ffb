"""Sinks that give the metrics of a run to other programs: TensorBoard, MLflow."""
