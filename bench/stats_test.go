package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBucketsCoverAllDurations(t *testing.T) {
	last := -1
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 130, 255, 256, 1000, 1e6, 1e9, 1e12, math.MaxInt64} {
		i := bucket(v)
		if i < last || i >= len(histogram{}.counts) {
			t.Fatalf("bucket(%d) = %d after %d, of %d", v, i, last, len(histogram{}.counts))
		}
		last = i
		if off := math.Abs(float64(middle(i))-float64(v)) / max(1, float64(v)); off > 1.0/64 {
			t.Errorf("middle(bucket(%d)) = %d, off by %.3f", v, middle(i), off)
		}
	}
	if last != len(histogram{}.counts)-1 {
		t.Errorf("the longest duration is in bucket %d of %d", last, len(histogram{}.counts))
	}
}

// TestQuantiles compares with the nearest rank in the sorted values.
func TestQuantiles(t *testing.T) {
	source := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 10, 99, 100, 101, 5000} {
		var h histogram
		var all []time.Duration
		for range n {
			d := time.Duration(math.Exp(source.Float64()*20)) * time.Nanosecond
			all = append(all, d)
			h.add(d)
		}
		slices.Sort(all)
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			want := all[int(math.Ceil(q*float64(n)))-1]
			got := h.quantile(q)
			if off := math.Abs(float64(got-want)) / float64(want); off > 1.0/64 {
				t.Errorf("quantile %.2f of %d: %s, want %s", q, n, got, want)
			}
		}
		if h.summary().Max != all[n-1] {
			t.Errorf("max %s, want %s", h.summary().Max, all[n-1])
		}
	}
}

func TestHistogramMerge(t *testing.T) {
	var whole, left, right histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		whole.add(d)
		if i%3 == 0 {
			left.add(d)
		} else {
			right.add(d)
		}
	}
	left.merge(&right)
	if left != whole {
		t.Errorf("merged %+v, want %+v", left.summary(), whole.summary())
	}
}

func TestEmptyAndNegative(t *testing.T) {
	var h histogram
	if h.summary() != (Summary{}) || h.quantile(0.5) != 0 {
		t.Errorf("empty: %+v", h.summary())
	}
	h.add(-time.Second)
	if h.summary() != (Summary{}) || h.total != 1 {
		t.Errorf("a negative duration counts as %+v", h.summary())
	}
}

func TestParseStat(t *testing.T) {
	const after = " S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 100 5000000 321 18446744073709551615 1\n"
	for _, name := range []string{"(exeunt)", "(a b)", "(odd) (name))"} {
		got, err := parseStat([]byte("42 "+name+after), 4096)
		if want := (usage{cpu: 2 * time.Second, resident: 321 * 4096}); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	for name, bad := range map[string]string{
		"no program name": "42 exeunt S 1",
		"stat ends":       "42 (exeunt) S 1 2 3",
		"stat field 14":   strings.Replace("42 (exeunt)"+after, "150", "x", 1),
	} {
		if _, err := parseStat([]byte(bad), 4096); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFindStamp(t *testing.T) {
	want := stamp{writer: 3, number: 42, sent: 1234567}
	body, err := readAll(stamped("watched-3-42", data(7, 100), want.String()))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := findStamp([]byte(`{"type":"ADDED","object":` + body + `}`)); !ok || got != want {
		t.Errorf("got %+v, %v", got, ok)
	}
	for _, bad := range []string{"", `"stamp":"`, `"stamp":""`, `"stamp":"1/2"`, `"stamp":"1/2/x"`, `"stamp":"-1/2/3"`, `"f:stamp":{}`} {
		if got, ok := findStamp([]byte(bad)); ok {
			t.Errorf("%s: found %+v", bad, got)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	err := WriteTable(&out, []Result{
		{Workload: "create", Measures: []Measure{{
			Name: "create", Operations: 1234567, PerSecond: 12345.6,
			Latency: Summary{P50: 1234 * time.Microsecond, P90: 12340 * time.Microsecond, P99: 123400 * time.Microsecond, Max: 1500 * time.Millisecond},
			Server:  &Cost{CPUPerOperation: 56700, Resident: 100 << 20},
		}}},
		{Workload: "watch", Measures: []Measure{{
			Name: "watch", Operations: 100, PerSecond: 10, Elapsed: 10 * time.Second,
			Latency: Summary{P50: 900}, Watch: &Delivery{Watchers: 100, Writes: 1, Missed: 2},
		}}},
	})
	want := `
| workload | operations | errors | per second |     p50 |     p90 |    p99 |    max | server CPU/op | server memory |
|:---------|-----------:|-------:|-----------:|--------:|--------:|-------:|-------:|--------------:|--------------:|
| create   |  1,234,567 |      0 |     12,346 | 1.23 ms | 12.3 ms | 123 ms | 1.50 s |       56.7 µs |       100 MiB |
| watch    |        100 |      0 |       10.0 |  900 ns |    0 ns |   0 ns |   0 ns |               |               |

watch: 100 watchers, 1 writes (0.1/s, p50 0 ns, p99 0 ns, 0 errors); from send to delivery p50 0 ns, p99 0 ns; 0 cut off, 2 missed, 0 duplicated.
`
	if err != nil || "\n"+out.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, out.String(), want)
	}
}
