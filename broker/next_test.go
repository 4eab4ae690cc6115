package broker_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/exeunt/exeunt/broker"
)

var rewrite = flag.Bool("update", false, "rewrite the expectations in testdata")

const tableFile = "testdata/next.txt"

const tableHead = `# What Next answers, for every combination of facts in every phase.
#
# In each table every combination matches exactly one row; the order of the rows
# means nothing. "-" is: whatever it is.
#
#   xr         the XR exists              node       a node is registered in the mesh
#   deleting   it is being deleted        token      the state of the bootstrap token
#   ready      it is ready                namespace  the namespace is ready
#   failed     it has failed for good     config     the ProviderConfig exists
#   overdue    the deadline has passed    secret     the token's secret lies there
#   other      a value that we do not know
#
# Written by: go test ./broker -run TestNext -update. Read the diff.
`

// A group is a set of phases in which Next gives the same answers, with the facts in the
// order in which a person would ask for them.
type group struct {
	title  string
	phases []broker.ProvisionedResourcePhase
	order  []string
}

var groups = []group{
	{
		"On the way up",
		[]broker.ProvisionedResourcePhase{broker.PhasePending, broker.PhaseProvisioning, broker.PhaseEnrolling, broker.PhaseReady, unknown},
		[]string{"xr", "failed", "deleting", "ready", "overdue", "node", "token", "namespace", "config", "secret"},
	},
	{
		"Failed",
		[]broker.ProvisionedResourcePhase{broker.PhaseFailed},
		[]string{"node", "token", "xr", "config", "secret", "failed", "deleting", "ready", "overdue", "namespace"},
	},
	{
		"On the way down",
		[]broker.ProvisionedResourcePhase{broker.PhaseDeregistering, broker.PhaseDeprovisioning},
		[]string{"node", "token", "xr", "config", "secret", "failed", "deleting", "ready", "overdue", "namespace"},
	},
	{
		"The end",
		[]broker.ProvisionedResourcePhase{broker.PhaseDeleted},
		[]string{"node", "token", "xr", "config", "secret", "failed", "deleting", "ready", "overdue", "namespace"},
	},
}

// TestNextTable compares Next with a readable table. The test generates the table from
// Next, then reads it back from the file and compares again, so that an error in the
// generator cannot hide an error in Next.
func TestNextTable(t *testing.T) {
	var text strings.Builder
	text.WriteString(tableHead)
	for _, g := range groups {
		text.WriteString(g.render())
	}
	stored, err := os.ReadFile(tableFile)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	if text.String() != string(stored) {
		if !*rewrite {
			t.Fatalf("%s differs; run with -update and read the diff. Got:\n%s", tableFile, &text)
		}
		if err := os.WriteFile(tableFile, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for _, g := range groups {
		rows := g.parse(t, text.String())
		used := make([]int, len(rows))
		for c := range combinations(g.order, nil) {
			i := match(t, g, rows, c)
			used[i]++
			for _, phase := range g.phases {
				if got := next(c.observed(), phase); got != rows[i].answer {
					t.Fatalf("%s, %v: Next answers %q, the table %q", phase, c, got, rows[i].answer)
				}
				checked++
			}
		}
		if i := slices.Index(used, 0); i >= 0 {
			t.Errorf("%s: no combination matches the row %v", g.title, rows[i])
		}
	}
	total := len(phases())
	for _, f := range facts {
		total *= len(f.values)
	}
	if checked != total {
		t.Errorf("checked %d combinations of %d", checked, total)
	}
}

// row has the facts that matter, each with its values.
type row struct {
	values map[string][]string
	answer string
}

func (r row) matches(c combination) bool {
	for name, values := range r.values {
		if !slices.Contains(values, c[name]) {
			return false
		}
	}
	return true
}

func match(t *testing.T, g group, rows []row, c combination) int {
	t.Helper()
	found := -1
	for i, r := range rows {
		if !r.matches(c) {
			continue
		}
		if found >= 0 {
			t.Fatalf("%s: two rows match %v: %v and %v", g.title, c, rows[found], r)
		}
		found = i
	}
	if found < 0 {
		t.Fatalf("%s: no row matches %v", g.title, c)
	}
	return found
}

// render writes the group's table, with the facts that matter as columns.
func (g group) render() string {
	rows := g.rows(g.order, combination{})
	columns := slices.DeleteFunc(slices.Clone(g.order), func(name string) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { return r.values[name] != nil })
	})
	var b strings.Builder
	names := make([]string, len(g.phases))
	for i, p := range g.phases {
		names[i] = string(p)
		if p == unknown {
			names[i] = "any other"
		}
	}
	fmt.Fprintf(&b, "\n== %s: %s\n\n", g.title, strings.Join(names, ", "))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range columns {
		fmt.Fprintf(w, "%s\t", name)
	}
	fmt.Fprintln(w, "=>")
	for _, r := range rows {
		for _, name := range columns {
			cell := "-"
			if r.values[name] != nil {
				cell = strings.Join(r.values[name], "|")
			}
			fmt.Fprintf(w, "%s\t", cell)
		}
		fmt.Fprintln(w, r.answer)
	}
	if err := w.Flush(); err != nil {
		panic(err) // a strings.Builder does not fail
	}
	return b.String()
}

// rows splits by the facts in order and omits those that make no difference. Values that
// lead to the same rows share them.
func (g group) rows(order []string, fixed combination) []row {
	if len(order) == 0 {
		answer := next(fixed.observed(), g.phases[0])
		return []row{{map[string][]string{}, answer}}
	}
	name := order[0]
	type branch struct {
		values []string
		rows   []row
	}
	var branches []branch
	for _, value := range facts[name].values {
		deeper := combination{name: value}
		for k, v := range fixed {
			deeper[k] = v
		}
		rows := g.rows(order[1:], deeper)
		i := slices.IndexFunc(branches, func(b branch) bool { return fmt.Sprint(b.rows) == fmt.Sprint(rows) })
		if i < 0 {
			branches = append(branches, branch{nil, rows})
			i = len(branches) - 1
		}
		branches[i].values = append(branches[i].values, value)
	}
	if len(branches) == 1 {
		return branches[0].rows
	}
	var all []row
	for _, b := range branches {
		for _, r := range b.rows {
			r.values[name] = b.values
			all = append(all, r)
		}
	}
	return all
}

// parse reads the group's table back.
func (g group) parse(t *testing.T, text string) []row {
	t.Helper()
	_, after, found := strings.Cut(text, "\n== "+g.title+": ")
	if !found {
		t.Fatalf("no table %q", g.title)
	}
	table, _, _ := strings.Cut(after, "\n== ")
	lines := strings.Split(strings.TrimSpace(table), "\n")[2:]
	columns := strings.Fields(lines[0])
	var rows []row
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		r := row{map[string][]string{}, strings.Join(cells[len(columns)-1:], " ")}
		for i, name := range columns[:len(columns)-1] {
			if cells[i] != "-" {
				r.values[name] = strings.Split(cells[i], "|")
			}
		}
		rows = append(rows, r)
	}
	return rows
}
