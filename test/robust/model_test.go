package robust_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is what a client did to one object.
type verb string

const (
	doCreate verb = "create"
	doGet    verb = "get"
	doUpdate verb = "update"
	doDelete verb = "delete"
)

// request is one operation. Every write has its own value.
type request struct {
	Verb    verb
	Name    string // of the object
	Value   int    // create, update: what it writes
	Version int64  // update, delete: the precondition; 0 if there is none
}

// outcome is what the client knows afterwards.
type outcome struct {
	Unknown bool // no answer, or one that leaves it open: the write may have happened, or may happen later
	Code    int
	Value   int   // get
	Version int64 // of a successful create, get or update
}

// register is an object as the model knows it. Version is 0 if the write that made it had
// no answer.
type register struct {
	Value   int // 0 if the object does not exist
	Version int64
}

// model is Kubernetes' promise for one object: operations take effect one after the
// other, each between its request and its answer.
var model = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		names := map[string]int{}
		var parts [][]porcupine.Operation
		for _, op := range history {
			name := op.Input.(request).Name
			i, ok := names[name]
			if !ok {
				i = len(parts)
				names[name], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		var next []any
		for _, r := range step(state.(register), input.(request), output.(outcome)) {
			next = append(next, r)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}).ToModel()

// step returns the states that an operation may lead to; none if its answer is wrong.
func step(s register, in request, out outcome) []register {
	if out.Unknown {
		states := []register{s}
		if may(s, in) {
			states = append(states, after(in, 0))
		}
		return states
	}
	allowed := false
	switch {
	case out.Code == 429: // refused before it began
		return []register{s}
	case out.Code == 404:
		allowed = in.Verb != doCreate && s.Value == 0
	case out.Code == 409 && in.Verb == doCreate:
		allowed = s.Value != 0
	case out.Code == 409:
		allowed = s.Value != 0 && (s.Version == 0 || s.Version != in.Version)
	case in.Verb == doGet:
		if s.Value == out.Value && (s.Version == 0 || s.Version == out.Version) {
			return []register{{out.Value, out.Version}}
		}
	case may(s, in) && (in.Verb == doDelete || out.Version > s.Version):
		return []register{after(in, out.Version)}
	}
	if allowed {
		return []register{s}
	}
	return nil
}

// may reports whether a write can succeed.
func may(s register, in request) bool {
	switch in.Verb {
	case doCreate:
		return s.Value == 0
	case doUpdate, doDelete:
		return s.Value != 0 && (in.Version == 0 || s.Version == 0 || s.Version == in.Version)
	}
	return false
}

func after(in request, version int64) register {
	if in.Verb == doDelete {
		return register{}
	}
	return register{in.Value, version}
}

// TestModel: the model refuses what no server may answer, and accepts what a lost answer
// leaves open.
func TestModel(t *testing.T) {
	create := request{doCreate, "a", 1, 0}
	type op struct {
		from, to int64
		in       request
		out      outcome
	}
	for name, c := range map[string]struct {
		history []op
		want    bool
	}{
		"a stale read": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 3, request{doUpdate, "a", 2, 5}, outcome{Code: 200, Version: 6}},
			{4, 5, request{doGet, "a", 0, 0}, outcome{Code: 200, Value: 1, Version: 5}},
		}, false},
		"a lost update": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 3, request{doUpdate, "a", 2, 5}, outcome{Code: 200, Version: 6}},
			{4, 5, request{doUpdate, "a", 3, 5}, outcome{Code: 200, Version: 7}},
		}, false},
		"a lost create": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 3, request{doGet, "a", 0, 0}, outcome{Code: 404}},
		}, false},
		"a conflict for no reason": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 3, request{doUpdate, "a", 2, 5}, outcome{Code: 409}},
		}, false},
		"a version that goes back": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 3, request{doUpdate, "a", 2, 5}, outcome{Code: 200, Version: 4}},
		}, false},
		"read in the middle of an update": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 9, request{doUpdate, "a", 2, 5}, outcome{Code: 200, Version: 6}},
			{4, 5, request{doGet, "a", 0, 0}, outcome{Code: 200, Value: 2, Version: 6}},
			{6, 7, request{doGet, "a", 0, 0}, outcome{Code: 200, Value: 1, Version: 5}},
		}, false},
		"an answer that was lost": {[]op{
			{0, 1, create, outcome{Code: 201, Version: 5}},
			{2, 99, request{doUpdate, "a", 2, 5}, outcome{Unknown: true}},
			{4, 5, request{doGet, "a", 0, 0}, outcome{Code: 200, Value: 1, Version: 5}},
			{6, 7, request{doGet, "a", 0, 0}, outcome{Code: 200, Value: 2, Version: 6}},
			{8, 9, request{doDelete, "a", 0, 6}, outcome{Code: 200}},
			{10, 11, request{doGet, "a", 0, 0}, outcome{Code: 404}},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var history []porcupine.Operation
			for i, o := range c.history {
				history = append(history, porcupine.Operation{ClientId: i, Input: o.in, Output: o.out, Call: o.from, Return: o.to})
			}
			if got := porcupine.CheckOperationsTimeout(model, history, time.Minute) == porcupine.Ok; got != c.want {
				t.Errorf("the model says %v", got)
			}
		})
	}
}
