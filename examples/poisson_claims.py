"""Claim counts with exposure: a Poisson regression whose offset is log(exposure), and whether it is calibrated.

The policies are made up, in the form of the French motor data set freMTPL2: area, region, brand and age of the vehicle,
young drivers, bonus-malus, density, the part of a year insured, claims. They are written to a Parquet file, which is
read back by its path: categories are spread out into one column each, and target and offset are named.

    python poisson_claims.py
    torchrun --nproc-per-node 4 poisson_claims.py         # each rank holds a quarter of the columns
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.preprocessing import StandardScaler

from laconic import CASGDRegressor
from laconic.data import read

AREAS, REGIONS, BRANDS = list("ABCDEF"), [f"R{i}" for i in range(11, 31)], [f"B{i}" for i in range(1, 12)]


def write_policies(path: Path, n: int = 60_000, seed: int = 0) -> None:
    """Policies of which each has a Poisson number of claims, of mean exposure × exp(what its columns say)."""
    rng = np.random.default_rng(seed)
    area, region, brand = (rng.integers(len(names), size=n) for names in (AREAS, REGIONS, BRANDS))
    age, vehicle_age = rng.integers(18, 90, n), rng.integers(0, 20, n)
    bonus_malus = np.clip(50 + rng.gamma(0.5, 20, n), 50, 230).round()
    density, exposure = np.exp(rng.normal(6, 1.5, n)).round(2), rng.uniform(0.05, 1, n).round(2)
    z = -1.7 + 0.1 * area + rng.normal(0, 0.2, 20)[region] + rng.normal(0, 0.1, 11)[brand]
    z += 0.012 * (bonus_malus - 60) + 0.1 * (np.log(density) - 6) + 0.6 * (age < 25) - 0.02 * vehicle_age
    columns = {
        "Area": np.array(AREAS)[area],
        "Region": np.array(REGIONS)[region],
        "VehBrand": np.array(BRANDS)[brand],
        "VehAge": vehicle_age,
        "YoungDriver": (age < 25).astype(np.int8),
        "BonusMalus": bonus_malus,
        "LogDensity": np.log(density),
        "LogExposure": np.log(exposure),
        "ClaimNb": rng.poisson(exposure * np.exp(z)),
    }
    pq.write_table(pa.table(columns), path)


def calibration(predicted: np.ndarray, observed: np.ndarray, exposure: np.ndarray) -> list[str]:
    """Claims predicted and observed, by tenths of the policies in order of their predicted claims a year."""
    lines = ["tenth  a year  predicted  observed"]
    for i, rows in enumerate(np.array_split(np.argsort(predicted / exposure), 10), start=1):
        rate = predicted[rows].sum() / exposure[rows].sum()
        lines.append(f"{i:5d}  {rate:6.3f}  {predicted[rows].sum():9.1f}  {observed[rows].sum():8d}")
    return [*lines, f"  all  {'':6}  {predicted.sum():9.1f}  {observed.sum():8d}"]


def main() -> None:
    """Write, read, fit, and compare what is predicted with what happened."""
    say = print if int(os.environ.get("RANK", 0)) == 0 else lambda line: None
    with tempfile.TemporaryDirectory() as folder:  # one a rank; on a cluster all ranks would read the same file
        path = Path(folder, "claims.parquet")
        write_policies(path)
        table = read(path, target="ClaimNb", offset="LogExposure", one_hot=("Area", "Region", "VehBrand"))
    y, offset = table.y.numpy(), table.offset.numpy()
    train, test = slice(0, 40_000), slice(40_000, None)
    scaler = StandardScaler().fit(table.X[train])
    X = scaler.transform(table.X).astype(np.float32)

    model = CASGDRegressor("poisson", alpha=1e-4, batch_size=64, n_iter_no_change=2, random_state=0)
    model.fit(X[train], y[train], offset=offset[train])  # sample_weight= would come beside it
    say(f"{model.n_features_in_} columns, {model.n_iter_} epochs of {model.ran_}")
    say(f"D² {model.score(X[test], y[test], offset=offset[test]):.3f} on {len(y[test]):,} policies not fitted to")
    column = table.feature_names.index("BonusMalus")
    effect = model.coef_[column] / scaler.scale_[column]
    say(f"ten points more of bonus-malus: {np.exp(10 * effect):.2f} times the claims")
    for line in calibration(model.predict(X[test], offset=offset[test]), y[test], np.exp(offset[test])):
        say(line)


if __name__ == "__main__":
    main()
