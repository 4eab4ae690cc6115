package inflight

import (
	"net/http/httptest"
	"testing"
)

// TestShares: one client with any number of requests does not starve others. A new client
// finds slots at once, and has its share when the first one's requests have ended.
func TestShares(t *testing.T) {
	const total = 100
	l := New(total)
	req := httptest.NewRequest("GET", "/", nil)
	running := map[string][]*Request{}
	begin := func(client string) bool {
		r, ok := l.BeginFor(client, httptest.NewRecorder(), req)
		if ok {
			running[client] = append(running[client], r)
		}
		return ok
	}
	end := func(client string) {
		running[client][0].End()
		running[client] = running[client][1:]
	}
	for range 1000 {
		begin("greedy")
	}
	if n := len(running["greedy"]); n != total*9/10 {
		t.Fatalf("a client alone has %d of %d slots, want %d", n, total, total*9/10)
	}
	for i := range total / 10 {
		if !begin("polite") {
			t.Fatalf("request %d of a new client is refused", i)
		}
	}
	// Whenever a request ends, the greedy client asks a hundred times, then the other once.
	for range 1000 {
		end("greedy")
		for range 100 {
			begin("greedy")
		}
		begin("polite")
		if len(running["greedy"]) < total/4 {
			break
		}
	}
	if greedy, polite := len(running["greedy"]), len(running["polite"]); polite < total/3 || greedy < total/4 {
		t.Errorf("greedy has %d slots, polite %d", greedy, polite)
	}
	for client, all := range running {
		for range all {
			end(client)
		}
	}
	if l.Serving() != 0 || len(l.clients) != 0 {
		t.Errorf("%d slots are taken, by %v", l.Serving(), l.clients)
	}
}

// TestSharesAfterAWait: a request that has waited for its client counts as before: its client
// gets no more slots by waiting, and gives back what it had.
func TestSharesAfterAWait(t *testing.T) {
	const total = 100
	l := New(total)
	req := httptest.NewRequest("GET", "/", nil)
	var running []*Request
	for {
		r, ok := l.BeginFor("greedy", httptest.NewRecorder(), req)
		if !ok {
			break
		}
		running = append(running, r)
	}
	for range 2 {
		for _, r := range running {
			r.Flush()
		}
		if _, ok := l.BeginFor("greedy", httptest.NewRecorder(), req); ok || l.clients["greedy"] != total*9/10 || l.Serving() != total*9/10 {
			t.Fatalf("after its requests have waited, the client has %d slots of %d that are taken; refused: %v", l.clients["greedy"], l.Serving(), !ok)
		}
	}
	for _, r := range running {
		r.End()
	}
	if l.Serving() != 0 || len(l.clients) != 0 {
		t.Errorf("%d slots are taken, by %v", l.Serving(), l.clients)
	}
}

// TestTake: several slots are taken together or not at all, count for their client, and are
// given back together.
func TestTake(t *testing.T) {
	const total = 100
	l := New(total)
	var giveBack []func()
	take := func(client string, n int) bool {
		give, ok := l.Take(client, n)
		if ok {
			giveBack = append(giveBack, give)
		}
		return ok
	}
	for i := range 100 {
		if took, want := take("greedy", 7), i < 12; took != want {
			t.Fatalf("take %d of 7 slots: %v, with %d taken", i, took, l.Serving())
		}
	}
	if l.Serving() != 12*7 {
		t.Errorf("%d slots are taken: a refusal must take none", l.Serving())
	}
	for i := range 3 {
		if took, want := take("polite", 7), i < 2; took != want {
			t.Errorf("take %d of 7 slots by a new client, which finds 16 free: %v", i, took)
		}
	}
	if !take("polite", 0) {
		t.Error("nothing can always be taken")
	}
	for _, give := range giveBack {
		give()
	}
	if l.Serving() != 0 || len(l.clients) != 0 {
		t.Errorf("%d slots are taken, by %v", l.Serving(), l.clients)
	}
}
