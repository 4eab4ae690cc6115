package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/bench"
)

// table has the figures of all turns. More is better in all of them.
type table struct {
	rows []*row
}

type row struct {
	name    string
	latency bool // the figures are durations in seconds, and less is better
	figures map[string][]float64
}

func (t *table) row(name string, latency bool) *row {
	for _, r := range t.rows {
		if r.name == name {
			return r
		}
	}
	made := &row{name: name, latency: latency, figures: map[string][]float64{}}
	t.rows = append(t.rows, made)
	return made
}

// add takes the rate of each measure, and the median duration of those that are made one at a time.
func (t *table) add(who string, results []bench.Result) {
	for _, result := range results {
		for _, m := range result.Measures {
			alone := result.Workload == "list" || result.Workload == "page" || strings.HasPrefix(m.Name, "list ")
			r := t.row(m.Name, alone)
			figure := m.PerSecond
			if alone {
				figure = m.Latency.P50.Seconds()
			}
			r.figures[who] = append(r.figures[who], figure)
		}
	}
}

// addDelivery takes how long an event needs on an idle server: from sending the write until the event is there.
func (t *table) addDelivery(who string, results []bench.Result) {
	m := results[0].Measures[0]
	for name, d := range map[string]time.Duration{
		"event after its write was sent, 100 writes/s": m.Watch.FromSend.P50,
		"write, 100 writes/s":                          m.Watch.Write.P50,
	} {
		r := t.row(name, true)
		r.figures[who] = append(r.figures[who], d.Seconds())
	}
}

// ratio is how many times better a is than b; 0 if not known.
func (r *row) ratio(a, b string) float64 {
	x, y := median(r.figures[a]), median(r.figures[b])
	if r.latency {
		x, y = y, x
	}
	if x == 0 || y == 0 {
		return 0
	}
	return x / y
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func (t *table) write(w io.Writer, r *runner) error {
	var out strings.Builder
	fmt.Fprintf(&out, "# Beside its peers, %s\n\n", time.Now().UTC().Format(time.DateOnly))
	fmt.Fprintf(&out, "`make long RUN=bench-peers`: %d rounds in turns, %d objects, medians. All databases sync every commit; load and servers share the machine. "+
		"A ratio above 1 means that ours is better than the peer, or PostgreSQL better than SQLite.\n\n", r.rounds, r.objects)
	fmt.Fprintf(&out, "| | peer | SQLite | ratio | PostgreSQL | ratio | PostgreSQL to SQLite |\n|---|--:|--:|--:|--:|--:|--:|\n")
	slices.SortStableFunc(t.rows, func(a, b *row) int { return strings.Compare(a.peer(), b.peer()) })
	for _, row := range t.rows {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s |\n", row.name, row.cell(row.peer()), row.cell(onSQLite), times(row.ratio(onSQLite, row.peer())),
			row.cell(onPostgres), times(row.ratio(onPostgres, row.peer())), times(row.ratio(onPostgres, onSQLite)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// peer is the program that the row compares with.
func (r *row) peer() string {
	if len(r.figures[distribution]) > 0 {
		return distribution
	}
	return kubernetes
}

func (r *row) cell(who string) string {
	m := median(r.figures[who])
	switch {
	case m == 0:
		return ""
	case r.latency:
		return time.Duration(m * float64(time.Second)).Round(10 * time.Microsecond).String()
	case m < 100:
		return fmt.Sprintf("%.1f/s", m)
	default:
		return fmt.Sprintf("%.0f/s", m)
	}
}

func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}
