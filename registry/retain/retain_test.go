package retain

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/exeunt/exeunt/lifecycle"
)

var now = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

func names(taken []Taken) string {
	var list []string
	for _, t := range taken {
		list = append(list, t.Tag)
	}
	return strings.Join(list, " ")
}

// TestDecide: the newest stay, by push or by pull; the first rule decides; a policy that keeps wins; what is held is named.
func TestDecide(t *testing.T) {
	t.Parallel()
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	tags := []Tag{
		{Name: "latest", Pushed: ago(900)},
		{Name: "pr-1", Pushed: ago(400), Pulled: ago(1)}, {Name: "pr-2", Pushed: ago(300)}, {Name: "pr-3", Pushed: ago(200)}, {Name: "pr-4", Pushed: ago(10)},
		{Name: "sha256-" + strings.Repeat("0", 64) + ".sig", Pushed: ago(900)},
		{Name: "v1", Pushed: ago(800), Immutable: true}, {Name: "v2", Pushed: ago(700), InUse: true}, {Name: "v3", Pushed: ago(600)},
	}
	pr, all, v := []string{"pr-*"}, []string{"*"}, []string{"v*"}
	for _, c := range []struct {
		policies, taken, held string
		list                  []Policy
	}{
		{"none", "", "", nil},
		{"the last two", "pr-1 pr-2", "", []Policy{{Rules: []Rule{{Tags: pr, KeepLast: 2}}}}},
		{"the last two by pull", "pr-2 pr-3", "", []Policy{{Rules: []Rule{{Tags: pr, KeepLast: 2, ByPull: true}}}}},
		{"ten days", "pr-1 pr-2", "", []Policy{{Rules: []Rule{{Tags: pr, KeepFor: 240 * time.Hour}}}}},
		{"the first rule decides", "latest pr-1 pr-2 pr-3", "v1 v2", []Policy{{Rules: []Rule{{Tags: pr, KeepLast: 1}, {Tags: all, KeepLast: 1}}}}},
		{"what another keeps stays", "pr-2", "", []Policy{{Rules: []Rule{{Tags: pr, KeepLast: 2}}}, {Rules: []Rule{{Tags: []string{"pr-1"}, KeepLast: 1}}}}},
		{"never those", "pr-2", "", []Policy{{Keep: []string{"*-1"}, Rules: []Rule{{Tags: pr, KeepLast: 2}}}}},
		{"held", "v3", "v1 v2", []Policy{{Rules: []Rule{{Tags: v}}}}},
	} {
		if d := Decide(now, c.list, tags); names(d.Taken) != c.taken || names(d.Held) != c.held {
			t.Errorf("%s: takes %q and holds %q, not %q and %q", c.policies, names(d.Taken), names(d.Held), c.taken, c.held)
		}
	}
}

// TestDecideWorlds: in random worlds a tag leaves exactly if some policy takes it, none keeps it, and nothing holds it, where each is
// said tag by tag. Decisions about pages of the tags are the same; without some of the newest they take less, never others.
func TestDecideWorlds(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 3))
	for round := range 2000 {
		policies, tags := someWorld(random)
		d := Decide(now, policies, tags)
		want := map[string]bool{}
		for _, tag := range tags {
			takes, keeps := false, false
			for _, p := range policies {
				i := p.ruleOf(tag.Name)
				if i < 0 {
					continue
				}
				r := p.Rules[i]
				newer := 0
				for _, other := range tags {
					if p.ruleOf(other.Name) == i && cmp.Or(r.timeOf(other).Compare(r.timeOf(tag)), cmp.Compare(tag.Name, other.Name)) > 0 {
						newer++
					}
				}
				stays := newer < r.KeepLast || now.Sub(r.timeOf(tag)) < r.KeepFor || lifecycle.MatchTag(p.Keep, tag.Name) != ""
				takes, keeps = takes || !stays, keeps || stays
			}
			if takes && !keeps && !tag.InUse && !tag.Immutable {
				want[tag.Name] = true
			}
		}
		n, blind := newNewest(policies), newNewest(policies)
		for page := range slices.Chunk(tags, 3) {
			n.add(page)
			if random.IntN(2) == 0 {
				blind.add(page)
			}
		}
		var paged Decision
		for page := range slices.Chunk(tags, 1+random.IntN(4)) {
			d := n.decide(now, policies, page)
			paged.Taken, paged.Held = append(paged.Taken, d.Taken...), append(paged.Held, d.Held...)
			for _, taken := range blind.decide(now, policies, page).Taken {
				if !want[taken.Tag] {
					t.Fatalf("seed %d, round %d: %s leaves, when not all of the newest are known", seed, round, taken.Tag)
				}
			}
		}
		if names(paged.Taken) != names(d.Taken) || names(paged.Held) != names(d.Held) {
			t.Fatalf("seed %d, round %d: page by page it takes %q and holds %q, not %q and %q", seed, round, names(paged.Taken), names(paged.Held), names(d.Taken), names(d.Held))
		}
		for _, taken := range d.Taken {
			if !want[taken.Tag] {
				t.Fatalf("seed %d, round %d: %s leaves", seed, round, taken.Tag)
			}
			delete(want, taken.Tag)
		}
		if len(want) > 0 {
			t.Fatalf("seed %d, round %d: %v stay", seed, round, want)
		}
	}
}

func someWorld(random *rand.Rand) (policies []Policy, tags []Tag) {
	pattern := func() string { return []string{"*", "a*", "b*", "*1", "?2", "a[0-4]"}[random.IntN(6)] }
	for i := range random.IntN(4) {
		p := Policy{Name: fmt.Sprint("p", i), Selector: labels.Everything()}
		if random.IntN(3) == 0 {
			p.Keep = []string{pattern()}
		}
		for range 1 + random.IntN(3) {
			r := Rule{Tags: []string{pattern()}, KeepLast: random.IntN(4), ByPull: random.IntN(2) == 0}
			if random.IntN(2) == 0 {
				r.KeepFor = time.Duration(random.IntN(100)) * time.Hour
			}
			p.Rules = append(p.Rules, r)
		}
		policies = append(policies, p)
	}
	for i := range random.IntN(14) {
		t := Tag{Name: fmt.Sprint([]string{"a", "b"}[i%2], i/2), Pushed: now.Add(-time.Duration(random.IntN(100)) * time.Hour)}
		if random.IntN(2) == 0 {
			t.Pulled = now.Add(-time.Duration(random.IntN(100)) * time.Hour)
		}
		t.InUse, t.Immutable = random.IntN(5) == 0, random.IntN(6) == 0
		tags = append(tags, t)
	}
	slices.SortFunc(tags, func(a, b Tag) int { return cmp.Compare(a.Name, b.Name) })
	return policies, tags
}

// TestCheckCost: what a policy costs for each tag is bounded; and no name is matched twice, but for those that it forgets.
func TestCheckCost(t *testing.T) {
	t.Parallel()
	many := func(n int, pattern string) []string { return slices.Repeat([]string{pattern}, n) }
	for want, p := range map[string]Policy{
		"":                {Keep: many(32, strings.Repeat("a", mostPattern)), Rules: []Rule{{Tags: many(32, "*"), KeepLast: mostKept}, {}}},
		"1001 together":   {Rules: []Rule{{KeepLast: mostKept}, {KeepLast: 1}}},
		"65 patterns":     {Keep: many(1, "*"), Rules: []Rule{{Tags: many(32, "*")}, {Tags: many(32, "*")}}},
		"more than 128 b": {Keep: many(1, strings.Repeat("a", mostPattern+1))},
	} {
		if err := p.checkCost(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := parse([]byte(`{"spec":{"keep":["*7"],"rules":[{"tags":["a*"]},{"tags":["b*"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range mostMatches + 1 {
		p.match(fmt.Sprint("b", i))
	}
	if m := p.match("b7"); m.rule != 1 || !m.kept || len(p.matches) > mostMatches {
		t.Errorf("%+v; %d are known", m, len(p.matches))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := learn(ctx, []Policy{p, p}, []Tag{{Name: "a"}}); err == nil {
		t.Error("it goes on when its time is over")
	}
}

// TestParse: what a schema cannot express is refused, and a policy has begun only in the generation that was started.
func TestParse(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"spec":{"rules":[{"tags":["v*"],"keepFor":"30d"}]}}`:                                               "",
		`{"spec":{"rules":[{"tags":["["]}]}}`:                                                                "rules[0].tags",
		`{"spec":{"rules":[{"tags":["a,b"]}]}}`:                                                              "rules[0].tags",
		`{"spec":{"rules":[{"tags":["*"],"keepFor":"long"}]}}`:                                               "rules[0].keepFor",
		`{"spec":{"rules":[{"tags":["*"],"keepFor":"-1h"}]}}`:                                                "rules[0].keepFor",
		`{"spec":{"keep":[""],"rules":[]}}`:                                                                  "keep",
		`{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]},"rules":[]}}`:                "selector",
		`{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"rules":[]}}`: "",
	} {
		if _, err := parse([]byte(body)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	p, err := parse([]byte(`{"metadata":{"name":"p"},"spec":{"keep":["v*"],"rules":[{"tags":["a*","b*"],"keepLast":3,"keepFor":"1d12h","by":"Pull"},{"tags":["*"],"by":"Push"}]}}`))
	want := []Rule{{Tags: []string{"a*", "b*"}, KeepLast: 3, KeepFor: 36 * time.Hour, ByPull: true}, {Tags: []string{"*"}}}
	if err != nil || p.Name != "p" || !p.Selector.Empty() || !slices.Equal(p.Keep, []string{"v*"}) || !reflect.DeepEqual(p.Rules, want) {
		t.Errorf("%+v, %v", p, err)
	}
	for i, why := range []string{"not among the last 3 by pull, older than 36h0m0s", "not among the last 0 by push"} {
		if got := want[i].why(); got != why {
			t.Errorf("a tag leaves because it is %q, not %q", got, why)
		}
	}
	for body, want := range map[string]bool{
		`{"metadata":{"generation":2,"annotations":{"lifecycle.exeunt.dev/start-retention":"2"}}}`: true,
		`{"metadata":{"generation":3,"annotations":{"lifecycle.exeunt.dev/start-retention":"2"}}}`: false,
		`{"metadata":{"generation":1}}`: false,
	} {
		if p, err := parse([]byte(body)); err != nil || p.Started != want {
			t.Errorf("%s: started %t, %v", body, p.Started, err)
		}
	}
}
