"""Writes readings.csv: what four boards measured, and whether a window was open."""

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
tables = []
for number, board in enumerate(["kitchen", "attic", "cellar", "garden"]):
    is_open = rng.random(150) < 0.2 + 0.2 * number  # each board has other shares
    warmth = 20 - 2 * number - 4 * is_open + rng.normal(size=150)
    damp = 50 + 5 * number + 8 * is_open + 4 * rng.normal(size=150)
    columns = {"board": board, "temperature": warmth, "humidity": damp, "open": is_open.astype(int)}
    tables.append(pd.DataFrame(columns))
pd.concat(tables).round(1).to_csv("readings.csv", index=False)
