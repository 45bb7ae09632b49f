"""Writes tests/data/stats: samples with what NumPy, SciPy and statsmodels compute from them.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install numpy==2.5.5 scipy==1.18.1 statsmodels==0.15.0
    /tmp/v/bin/python scripts/stats_vectors.py tests/data/stats

The tests of crates/core/src/stats read the files; nothing else needs this.
"""
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import scipy
import scipy.stats as st
import statsmodels
from scipy import special
from statsmodels.stats.proportion import proportion_confint

PINNED = {"numpy": ("2.5.5", np), "scipy": ("1.18.1", scipy), "statsmodels": ("0.15.0", statsmodels)}

# The pairs of reference/spark-gb10.toml, as differences.
GOODPUT = [8.86, 6.39, 8.25, 7.29, 8.27]
ORDER_GOODPUT = [0.40, -0.42, -0.18, -0.15, 0.21]


def floats(values):
    return [float(v) for v in values]


def rows(function, *arguments):
    return [floats([*a, function(*a)]) for a in itertools.product(*arguments)]


def distributions():
    betas = [(0.5, 0.5, 0.3), (2, 3, 0.4), (200, 1, 0.99), (10, 990, 0.01), (5000, 5001, 0.5), (1e5, 3, 0.99999)]
    binomials = [(0, 5, 0.5), (3, 9, 0.2), (40, 100, 0.45), (990, 1000, 0.99), (7, 7, 0.3), (0, 300, 1e-4)]
    return {
        "deviations": rows(lambda c: st.norm.isf((1 - c) / 2), [0.8, 0.9, 0.95, 0.99, 0.999]),
        "normal_cdf": rows(st.norm.cdf, [-8, -3, -1.5, 0, 0.2, 2, 6]),
        "student_tails": rows(lambda t, f: 2 * st.t.sf(abs(t), f), [-12, -2.5, 0, 0.3, 1, 4.2], [1, 2, 3, 4, 9.5, 40]),
        "student_deviations": rows(lambda c, f: st.t.isf((1 - c) / 2, f), [0.8, 0.95, 0.999], [1, 2, 4, 9, 29, 500]),
        "incomplete_beta": [floats([*a, special.betainc(*a)]) for a in betas],
        "binomial_cdf": [floats([*a, st.binom.cdf(*a)]) for a in binomials],
        # n normal values all above 0 in this share of samples, if their mean is this many deviations above it;
        # 95 % intervals of up to five values are their range.
        "all_alike": rows(lambda n, share: st.norm.ppf(share ** (1 / n)), [2, 3, 4, 5], [0.8, 0.9]),
    }


def some_samples(rng):
    return [GOODPUT, ORDER_GOODPUT, [3.0, 3.0], [7.0, -2.5, 7.0], list(range(6)),
            rng.lognormal(6, 1, 23).round(3), rng.normal(0, 2, 40).round(4), rng.integers(0, 4, 31)]


def samples(rng):
    out = []
    for x in map(np.asarray, some_samples(rng)):
        quantiles = {str(p): float(np.quantile(x, p)) for p in (0, 0.025, 0.25, 0.5, 0.9, 0.95, 0.99, 1)}
        q75, q25 = np.quantile(x, [0.75, 0.25])
        out.append({"sample": floats(x), "quantiles": quantiles, "mean": float(x.mean()), "median": float(np.median(x)),
                    "deviation": float(x.std(ddof=1)), "quartile_range": float(q75 - q25),
                    "jain": float(x.sum() ** 2 / (len(x) * (x ** 2).sum()))})
    return {"samples": out}


def shares():
    cases = [(128, 200, 0.95), (190, 200, 0.95), (200, 200, 0.95), (0, 50, 0.95), (1, 1, 0.95), (962, 1000, 0.95),
             (128, 200, 0.99), (32, 200, 0.99), (3, 7, 0.8), (1, 100_000, 0.95)]
    out = {"wilson": [], "clopper_pearson": []}
    for k, n, c in cases:
        out["wilson"].append(floats([k, n, c, *proportion_confint(k, n, 1 - c, method="wilson")]))
        exact = st.binomtest(k, n).proportion_ci(c, method="exact")
        out["clopper_pearson"].append(floats([k, n, c, exact.low, exact.high]))
    return out


def bootstrap(rng):
    """Of few values the percentiles over every resample; of more SciPy's own draws."""
    exhaustive, drawn = [], []
    for x in [GOODPUT, ORDER_GOODPUT, [1.0, 4.0], [2.0, 2.0, 9.0], [5.0, 1.0, -3.0, 8.0],
              floats(rng.normal(0, 1, 6).round(3)), floats(rng.lognormal(0, 1, 7).round(3))]:
        x = np.asarray(x)
        every = x[np.array(list(itertools.product(range(len(x)), repeat=len(x))))]
        for name, of in (("median", np.median), ("mean", np.mean)):
            low, high = np.percentile(of(every, axis=1), [2.5, 97.5])
            exhaustive.append({"sample": floats(x), "statistic": name, "low": float(low), "high": float(high)})
    for x in [rng.normal(1, 2, 12), rng.lognormal(0, 1, 25), rng.normal(0, 1, 60)]:
        x = x.round(4)
        for name, of in (("median", np.median), ("mean", np.mean)):
            got = st.bootstrap((x,), of, n_resamples=200_000, batch=20_000, method="percentile", rng=rng)
            between = np.percentile(got.bootstrap_distribution, [1.95, 3.05, 96.95, 98.05])
            drawn.append({"sample": floats(x), "statistic": name, "scipy": floats(got.confidence_interval),
                          "low_between": floats(between[:2]), "high_between": floats(between[2:])})
    return {"exhaustive": exhaustive, "drawn": drawn}


def interpolated(sample, confidence):
    """Hettmansperger and Sheather's interval of the median, by SciPy's binomial distribution."""
    x, n = sorted(sample), len(sample)
    gamma = lambda d: 1 - 2 * st.binom.cdf(d - 1, n, 0.5)
    if gamma(1) <= confidence:
        return x[0], x[-1], gamma(1)
    d = max(d for d in range(1, n // 2 + 1) if gamma(d) > confidence)
    i = (gamma(d) - confidence) / (gamma(d) - gamma(d + 1))
    part = (n - d) * i / (d + (n - 2 * d) * i)
    return (1 - part) * x[d - 1] + part * x[d], (1 - part) * x[n - d] + part * x[n - d - 1], confidence


def tests(rng):
    out = {"mean_interval": [], "median_interval": [], "sign": [], "between": [], "trend": []}
    several = [np.asarray(x, dtype=float) for x in some_samples(rng)]
    for x in several:
        for c in (0.9, 0.95):
            half = st.t.isf((1 - c) / 2, len(x) - 1) * st.sem(x)
            out["mean_interval"].append({"sample": floats(x), "confidence": c, "low": float(x.mean() - half),
                                         "high": float(x.mean() + half)})
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 25, 40, 200):
        x = rng.normal(0, 1, n).round(4)
        low, high, confidence = interpolated(x, 0.95)
        out["median_interval"].append({"sample": floats(x), "low": float(low), "high": float(high),
                                       "confidence": float(confidence)})
    for x in [GOODPUT, ORDER_GOODPUT, [0.0, 1.0, 2.0, 0.0, -1.0], [1.0], floats(rng.normal(0.3, 1, 40).round(3))]:
        some = [v for v in x if v != 0]
        p = st.binomtest(sum(v > 0 for v in some), len(some)).pvalue
        out["sign"].append({"sample": x, "p": float(p)})
    # The rejections of the candidate in admission_pairs, by which side of the pair ran first.
    for a, b in [([71, 72], [41, 47, 47]), ([1.0], [2.0, 3.5]), (rng.normal(0, 1, 9), rng.normal(1, 1, 12))]:
        got = st.ttest_ind(b, a)
        out["between"].append({"a": floats(a), "b": floats(b), "difference": float(np.mean(b) - np.mean(a)),
                               "p": float(got.pvalue)})
    for x in [GOODPUT, [1.0, 2.0, 4.0], floats((np.arange(20) * 0.1 + rng.normal(0, 1, 20)).round(3))]:
        got = st.linregress(range(len(x)), x)
        out["trend"].append({"sample": x, "slope": float(got.slope), "p": float(got.pvalue)})
    return out


def main():
    folder = Path(sys.argv[1])
    for name, (version, module) in PINNED.items():
        if module.__version__ != version:
            sys.exit(f"{name} {module.__version__} where the vectors are those of {version}")
    folder.mkdir(parents=True, exist_ok=True)
    rng = lambda: np.random.default_rng(20)
    files = {"distributions": distributions(), "samples": samples(rng()), "shares": shares(),
             "bootstrap": bootstrap(rng()), "tests": tests(rng())}
    versions = {name: version for name, (version, _) in PINNED.items()}
    for name, content in files.items():
        # One line for each entry, so that a change shows as one.
        lists = [f' {json.dumps(key)}: [\n  ' + ",\n  ".join(map(json.dumps, value)) + "\n ]"
                 for key, value in content.items()]
        text = "{\n " + json.dumps("made_with") + ": " + json.dumps(versions) + ",\n" + ",\n".join(lists) + "\n}\n"
        json.loads(text)
        (folder / f"{name}.json").write_text(text)


main()
