package crossplane

import (
	"slices"
	"strings"
	"testing"
)

// TestCompare: a history that lacks a line, or has the lines of a kind or the milestones in another order,
// differs; other orders across kinds depend on timing and do not.
func TestCompare(t *testing.T) {
	want := []string{"XNode created", "Machine created", "XNode Ready True Available", "MeshNode gone", "XNode deleting", "Machine gone", "XNode gone"}
	for name, test := range map[string]struct {
		got  []string
		part string // of the one difference; "" if there is none
	}{
		"same":                        {want, ""},
		"timing":                      {swapped(want, 2, 3), ""},
		"a condition is missing":      {slices.Concat(want[:2], want[3:]), "XNode:"},
		"another order of one kind":   {swapped(want, 0, 2), "XNode:"},
		"substrate before node":       {swapped(want, 3, 4), "the milestones:"},
		"the machine outlives the XR": {swapped(want, 5, 6), "the milestones:"},
	} {
		differences := Compare(test.got, want)
		if test.part == "" && len(differences) != 0 || test.part != "" && (len(differences) == 0 || !strings.HasPrefix(differences[0], test.part)) {
			t.Errorf("%s: %q, want %q", name, differences, test.part)
		}
	}
}

func swapped(lines []string, i, j int) []string {
	lines = slices.Clone(lines)
	lines[i], lines[j] = lines[j], lines[i]
	return lines
}
