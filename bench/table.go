package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

var tableHead = []string{
	"workload", "operations", "errors", "per second", "p50", "p90", "p99", "max",
	"server CPU/op", "server memory",
}

// WriteTable writes the results for people: a Markdown table with aligned
// columns, and below it a line for each watch and for each comparison with a
// yardstick.
func WriteTable(w io.Writer, results []Result) error {
	rows := [][]string{tableHead}
	var notes []string
	for _, r := range results {
		for _, m := range r.Measures {
			rows = append(rows, tableRow(m))
			if m.Watch != nil {
				notes = append(notes, watchNote(m))
			}
			if y := m.Yardstick; y != nil {
				notes = append(notes, fmt.Sprintf("%s: %.2f times as long as %s.", m.Name, y.Times, y.Name))
			}
		}
	}
	var out strings.Builder
	alignRows(&out, rows)
	for _, note := range notes {
		out.WriteString("\n" + note + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func tableRow(m Measure) []string {
	row := []string{
		m.Name, grouped(m.Operations), grouped(m.Errors), rate(m.PerSecond),
		short(m.Latency.P50), short(m.Latency.P90), short(m.Latency.P99), short(m.Latency.Max), "", "",
	}
	if m.Server != nil {
		row[8], row[9] = short(m.Server.CPUPerOperation), memory(m.Server.Resident)
	}
	return row
}

func watchNote(m Measure) string {
	w := m.Watch
	return fmt.Sprintf("%s: %s watchers, %s writes (%s/s, p50 %s, p99 %s, %s errors); from send to delivery p50 %s, p99 %s; "+
		"%s cut off, %s missed, %s duplicated.",
		m.Name, grouped(int64(w.Watchers)), grouped(w.Writes), rate(float64(w.Writes)/m.Elapsed.Seconds()),
		short(w.Write.P50), short(w.Write.P99), grouped(w.WriteErrs), short(w.FromSend.P50), short(w.FromSend.P99),
		grouped(int64(w.CutOff)), grouped(w.Missed), grouped(w.Duplicated))
}

// alignRows writes the rows as a Markdown table: names left-aligned, figures
// right-aligned.
func alignRows(out *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				out.WriteString("| " + cell + pad + " ")
			} else {
				out.WriteString("| " + pad + cell + " ")
			}
		}
		out.WriteString("|\n")
		if n == 0 {
			for i, width := range widths {
				if i == 0 {
					out.WriteString("|:" + strings.Repeat("-", width+1))
				} else {
					out.WriteString("|" + strings.Repeat("-", width+1) + ":")
				}
			}
			out.WriteString("|\n")
		}
	}
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func rate(perSecond float64) string {
	if perSecond < 100 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return grouped(int64(perSecond + 0.5))
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d < unit.size {
			continue
		}
		value := float64(d) / float64(unit.size)
		switch {
		case value >= 99.95:
			return fmt.Sprintf("%.0f %s", value, unit.name)
		case value >= 9.995:
			return fmt.Sprintf("%.1f %s", value, unit.name)
		default:
			return fmt.Sprintf("%.2f %s", value, unit.name)
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

func memory(bytes int64) string {
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}
