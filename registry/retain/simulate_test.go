package retain

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReplay: which pulls fail, case by case. TestSimulation compares random worlds with what happens.
func TestReplay(t *testing.T) {
	t.Parallel()
	const first = 100
	at := func(day, hour int) time.Time { return dayTime(int64(first + day)).Add(time.Duration(hour) * time.Hour) }
	pushed := func(day int, tag, digest string) change {
		return change{day: int64(first + day), tag: tag, is: version{digest, at(day, 1)}}
	}
	old := func(tag, digest string) Tag { return Tag{Name: tag, Digest: digest, Pushed: at(-50, 0)} }
	by := func(day int, tag, digest string) pull { return pull{int64(first + day), tag, digest, 2, at(day, 2)} }
	newest := func(byPull bool) []Policy {
		return []Policy{{Name: "p", Rules: []Rule{{Tags: []string{"*"}, KeepLast: 1, ByPull: byPull}}}}
	}
	for name, c := range map[string]struct {
		policies []Policy
		past     past
		want     string
	}{
		"nothing to apply": {nil, past{tags: []Tag{old("a", "1"), old("b", "2")}, pulls: []pull{by(0, "b", "2")}}, ""},
		"a tag that is gone, from the first day on": {newest(false), past{tags: []Tag{old("a", "1"), old("b", "2")}, pulls: []pull{by(0, "b", "2"), by(2, "b", "2")}},
			":b 0, :b 2"},
		"on the day after another was pushed": {newest(false), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "2", Pushed: at(1, 1)}}, changes: []change{pushed(1, "b", "2")},
			pulls: []pull{by(0, "a", "1"), by(1, "a", "1"), by(2, "a", "1")}}, ":a 2"},
		"a push brings it back": {newest(false), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "3", Pushed: at(1, 1)}}, changes: []change{
			{day: first + 1, tag: "b", was: version{"2", at(-60, 0)}, is: version{"3", at(1, 1)}}}, pulls: []pull{by(0, "b", "2"), by(1, "b", "3"), by(2, "b", "3")}}, ":b 0"},
		"two pushes": {newest(false), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "4", Pushed: at(2, 1)}}, changes: []change{
			{day: first + 1, tag: "b", was: version{"2", at(-60, 0)}, is: version{"3", at(1, 1)}}, {day: first + 2, tag: "b", was: version{"3", at(1, 1)}, is: version{"4", at(2, 1)}}},
			pulls: []pull{by(0, "b", "2"), by(1, "b", "3")}}, ":b 0"},
		"a client deleted it": {newest(false), past{tags: []Tag{old("a", "1")}, changes: []change{
			{day: first + 1, tag: "b", was: version{"2", at(-60, 0)}}}, pulls: []pull{by(0, "b", "2"), by(2, "", "2")}}, ":b 0"},
		"a digest, while another tag has it": {newest(false), past{tags: []Tag{old("a", "1"), old("b", "1"), old("c", "2")}, pulls: []pull{by(0, "", "1"), by(0, "", "2")}}, "@2 0"},
		"a manifest of lists": {newest(false), past{tags: []Tag{old("a", "1"), old("b", "2"), old("c", "3")}, lists: map[string][]string{"x": {"1", "2"}, "y": {"2", "3"}},
			pulls: []pull{by(0, "", "x"), by(0, "", "y"), by(0, "", "z")}}, "@y 0"},
		"in use and immutable": {newest(false), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "2", Pushed: at(-60, 0), InUse: true}, {Name: "c", Digest: "3", Pushed: at(-60, 0), Immutable: true}},
			pulls: []pull{by(0, "b", "2"), by(0, "c", "3")}}, ""},
		"pulled before the record": {newest(true), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "2", Pushed: at(-60, 0), Pulled: at(2, 2)}}, pulls: []pull{by(0, "b", "2"), by(2, "a", "1")}}, ":a 2"},
		"a pull keeps":             {newest(true), past{tags: []Tag{old("a", "1"), old("b", "2")}, pulls: []pull{by(0, "a", "1"), by(1, "b", "2")}}, ":b 1"},
		"the last pull counts, by whatever name": {newest(true), past{tags: []Tag{old("a", "1"), {Name: "b", Digest: "2", Pushed: at(-60, 0)}, {Name: "c", Digest: "3", Pushed: at(0, 1)}}, changes: []change{pushed(0, "c", "3")},
			pulls: []pull{{first, "", "3", 2, at(0, 9)}, {first, "a", "1", 2, at(0, 5)}, {first, "c", "3", 2, at(0, 3)}, by(1, "a", "1"), by(1, "c", "3")}}, ":a 1"},
		"a pull that fails keeps nothing": {newest(true), past{tags: []Tag{
			old("a", "1"), {Name: "b", Digest: "1", Pushed: at(-60, 0)}, {Name: "c", Digest: "2", Pushed: at(0, 3)}}, changes: []change{pushed(0, "c", "2")},
			pulls: []pull{by(0, "b", "1"), by(1, "a", "1")}}, ":b 0, :a 1"},
	} {
		var got []string
		if c.past.lists == nil {
			c.past.lists = map[string][]string{}
		}
		for _, f := range replay(first, first+3, c.policies, c.past) {
			day, err := time.Parse(time.DateOnly, f.Day)
			if err != nil || f.Pulls != 2 || f.Policy != "p" {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
			got = append(got, fmt.Sprint(f.Reference, " ", dayOf(day)-first))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q fail, not %q", name, strings.Join(got, ", "), c.want)
		}
	}
}
