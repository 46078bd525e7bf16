#!/usr/bin/env python3
"""report.py SAMPLES JSON SVG: medians of what `quickstart bench` has measured, as a table, as JSON and as a picture.

SAMPLES has lines "TRANSPORT MEASURE SIZE VALUE", several for each figure, and "footprint WHAT RANKS VALUE LAYOUT",
"instructions WHAT SIZE VALUE -", one for each.
"""
import json
import math
import statistics
import sys

UNITS = {"latency": "us", "bandwidth": "MB/s", "bidirectional": "MB/s", "rate": "million/s", "put": "us", "fetch_add": "us"}
ORDER = ["xrc", "openib", "vader", "tcp", "ibv_xrc"]
COLOURS = {"xrc": "#c0392b", "openib": "#2874a6", "vader": "#1e8449", "tcp": "#7d3c98", "ibv_xrc": "#7f8c8d"}
NAMES = {"ibv_xrc": "ib_send_lat -c XRC"}

NOTES = {"put": "tcp by osc/pt2pt, all others by osc/rdma", "fetch_add": "tcp by osc/pt2pt, all others by osc/rdma"}


def read(path):
    samples, facts = {}, {}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            word = line.split()
            number = len(word) > 3 and word[2].isdecimal()
            if number and len(word) == 5 and word[0] in ("footprint", "instructions"):
                facts.setdefault(word[0], []).append({"what": word[1], "of": word[4] if word[4] != "-" else int(word[2]), "value": float(word[3])})
            elif number and len(word) == 4 and word[1] in UNITS:
                samples.setdefault((word[1], word[0], int(word[2])), []).append(float(word[3]))
            else:
                sys.exit(f"{path}: what is '{line.strip()}'?")
    return samples, facts


def figures(samples):
    """measure -> transport -> size -> {median, least, most, samples}"""
    result = {}
    for (measure, transport, size), values in sorted(samples.items()):
        result.setdefault(measure, {}).setdefault(transport, {})[size] = {
            "median": statistics.median(values), "least": min(values), "most": max(values), "samples": len(values)}
    return result


def transports(by_transport):
    return [t for t in ORDER if t in by_transport]


def table(measure, by_transport):
    names = transports(by_transport)
    sizes = sorted({size for t in names for size in by_transport[t]})
    first = "pairs" if measure == "rate" else "bytes"
    print(f"\n  {measure}, {UNITS[measure]}")
    print("  " + f"{first:>9}" + "".join(f"{NAMES.get(t, t):>20}" for t in names))
    for size in sizes:
        cells = [f"{by_transport[t][size]['median']:20.4g}" if size in by_transport[t] else f"{'-':>20}" for t in names]
        print(f"  {size:>9}" + "".join(cells))
    if measure in NOTES and "tcp" in by_transport:
        print(f"  {'':>9}  {NOTES[measure]}")


def ratio(result, measure, size, over):
    """xrc's figure over another's, or None"""
    try:
        return result[measure]["xrc"][size]["median"] / result[measure][over][size]["median"]
    except KeyError:
        return None


def ratios(result):
    wanted = [("latency", 8, "ibv_xrc"), ("latency", 8, "openib"), ("latency", 8, "vader"), ("latency", 1 << 20, "openib"),
              ("bandwidth", 1 << 21, "vader"), ("bandwidth", 1 << 21, "openib"), ("rate", 2, "openib"), ("rate", 4, "openib"),
              ("put", 8, "openib"), ("fetch_add", 8, "openib")]
    found = []
    for measure, size, over in wanted:
        value = ratio(result, measure, size, over)
        if value is not None:
            found.append({"measure": measure, "size": size, "over": over, "ratio": value})
    return found


def print_facts(facts):
    if "footprint" in facts:
        print("\n  footprint while each rank is connected with each")
        for f in facts["footprint"]:
            print(f"  {f['of']:>9} {f['what']:>14} {f['value']:14.0f}")
    if "instructions" in facts:
        print("\n  instructions to send and receive 8 bytes, both ends together")
        for f in facts["instructions"]:
            print(f"  {f['what']:>24} {f['value']:14.0f}")


def log_scale(low, high, start, length):
    a, b = math.log10(low), math.log10(high)
    return lambda v: start + (math.log10(v) - a) / (b - a) * length


def human(size):
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}G"


def chart(x0, title, unit, by_transport):
    """Lines over message size, both axes logarithmic."""
    width, height, top = 400, 280, 50
    points = [(s, f["median"]) for sizes in by_transport.values() for s, f in sizes.items() if f["median"] > 0]
    if len({s for s, _ in points}) < 2:
        return []
    low, high = min(s for s, _ in points), max(s for s, _ in points)
    least = 10 ** math.floor(math.log10(min(v for _, v in points)))
    most = 10 ** math.ceil(math.log10(max(v for _, v in points)) + 1e-9)
    x, y = log_scale(low, high, x0, width), log_scale(least, max(most, least * 10), top + height, -height)
    svg = [f'<text x="{x0}" y="{top - 16}" class="title">{title}, {unit}</text>']
    v = least
    while v <= most * 1.001:
        svg.append(f'<path class="grid" d="M{x0} {y(v):.1f}h{width}"/><text x="{x0 - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>')
        v *= 10
    size = low
    while size <= high:
        svg.append(f'<path class="grid" d="M{x(size):.1f} {top}v{height}"/><text x="{x(size):.1f}" y="{top + height + 16}" text-anchor="middle">{human(size)}</text>')
        size *= 16
    for row, t in enumerate(transports(by_transport)):
        line = sorted((s, f["median"]) for s, f in by_transport[t].items() if f["median"] > 0)
        svg.append(f'<polyline stroke="{COLOURS[t]}" points="' + " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in line) + '"/>')
        svg.append(f'<text x="{x0 + 14}" y="{top + 20 + 16 * row}" fill="{COLOURS[t]}">{NAMES.get(t, t)}</text>')
    return svg


def picture(result):
    body = []
    for i, measure in enumerate(m for m in ("latency", "bandwidth") if m in result):
        body += chart(60 + 480 * i, measure, UNITS[measure], result[measure])
    style = ("text{font:12px sans-serif}.title{font-weight:bold}.grid{stroke:#ddd;fill:none}"
             "polyline{fill:none;stroke-width:2}")
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="980" height="370" viewBox="0 0 980 370">'
            f'<style>{style}</style><rect width="980" height="370" fill="white"/>' + "".join(body) + "</svg>\n")


def main(samples_path, json_path, svg_path):
    samples, facts = read(samples_path)
    result = figures(samples)
    if not result:
        sys.exit("nothing was measured")
    for measure in UNITS:
        if measure in result:
            table(measure, result[measure])
    found = ratios(result)
    print("\n  xrc as a ratio")
    for r in found:
        print(f"  {r['measure']:>13} {r['size']:>8} over {NAMES.get(r['over'], r['over']):<20}{r['ratio']:6.2f}")
    print_facts(facts)
    with open(json_path, "w", encoding="ascii") as out:
        json.dump({"units": UNITS, "figures": result, "ratios": found, "notes": NOTES, **facts}, out, indent=1)
        out.write("\n")
    with open(svg_path, "w", encoding="ascii") as out:
        out.write(picture(result))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
