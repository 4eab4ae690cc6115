// Package model_test holds small models of the protocols that docs/spec argues, and walks through all
// their interleavings. A model has the steps and locks that PostgreSQL sees, and nothing else.
// Each has mutants: one rule less, and the walk must find what goes wrong.
package model_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// step is one thing that can happen next.
type step[S comparable] struct {
	name string
	to   S
}

// walk visits every state that can be reached from start. check fails on a state that must not
// be; done marks the states in which nothing more happens.
type walk[S comparable] struct {
	next  func(S) []step[S]
	check func(s S, done bool) error
}

// run returns the numbers of states and of interleavings (paths from the start to an end), or
// the shortest path to a state that fails. No state may be reached twice on one path.
func (w walk[S]) run(start S) (states int, paths *big.Int, err error) {
	type origin struct {
		from S
		name string
	}
	origins := map[S]origin{start: {}}
	order := []S{start}
	for i := 0; i < len(order); i++ {
		s := order[i]
		steps := w.next(s)
		if err := w.check(s, len(steps) == 0); err != nil {
			var trace []string
			for at := s; at != start; at = origins[at].from {
				trace = append(trace, origins[at].name)
			}
			slices.Reverse(trace)
			return 0, nil, fmt.Errorf("%w, after: %s", err, strings.Join(trace, "; "))
		}
		for _, x := range steps {
			if _, seen := origins[x.to]; !seen {
				origins[x.to] = origin{s, x.name}
				order = append(order, x.to)
			}
		}
	}
	return len(order), w.count(start, map[S]*big.Int{}), nil
}

func (w walk[S]) count(s S, known map[S]*big.Int) *big.Int {
	if n, ok := known[s]; ok {
		return n
	}
	steps := w.next(s)
	n := new(big.Int)
	if len(steps) == 0 {
		n.SetInt64(1)
	}
	for _, x := range steps {
		n.Add(n, w.count(x.to, known))
	}
	known[s] = n
	return n
}

// holds runs a model, and its mutants, which must fail with the given words.
func holds[S comparable](t *testing.T, start S, model func(mutant string) walk[S], mutants map[string]string) {
	t.Helper()
	states, paths, err := model("").run(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %s interleavings", states, paths)
	for mutant, want := range mutants {
		_, _, err := model(mutant).run(start)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q the walk says %v; want %q", mutant, err, want)
			continue
		}
		t.Logf("without %q: %v", mutant, err)
	}
}
