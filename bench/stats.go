package bench

import (
	"math/bits"
	"time"
)

// subBits sets the histogram's precision: each power of two is divided into
// 2^subBits buckets, so a value is known to 1 part in 64, or 1.6 %.
const subBits = 6

// histogram counts durations. Its size is fixed, so its memory does not depend
// on the length of a run, and adding takes a few nanoseconds. It is not safe
// for concurrent use: each worker has its own, merged at the end.
type histogram struct {
	counts [(64 - subBits) << subBits]int64
	total  int64
	sum    time.Duration
	max    time.Duration
}

// bucket maps a value to its bucket: values below 2^subBits have one each,
// larger ones share a bucket with those that agree in the leading bits.
func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// middle is the value that represents a bucket.
func middle(i int) time.Duration {
	if i < 2<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	low := uint64(i-shift<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// add counts a duration. A negative duration counts as zero.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// quantile is the smallest duration that at least the share q of all durations
// does not exceed (the nearest rank).
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := int64(q * float64(h.total))
	if float64(rank) < q*float64(h.total) || rank == 0 {
		rank++
	}
	var seen int64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

// Summary describes a set of latencies, in nanoseconds. Quantiles are exact to
// 1.6 %, the maximum is exact.
type Summary struct {
	Mean time.Duration `json:"mean"`
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P99  time.Duration `json:"p99"`
	Max  time.Duration `json:"max"`
}

func (h *histogram) summary() Summary {
	if h.total == 0 {
		return Summary{}
	}
	return Summary{
		Mean: h.sum / time.Duration(h.total),
		P50:  h.quantile(0.50), P90: h.quantile(0.90), P99: h.quantile(0.99), Max: h.max,
	}
}
