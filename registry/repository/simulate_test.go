package repository

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSimulation: what a simulation says of a repository is what happened to another one, with the same pushes, deletions
// and pulls, to which the same policies were applied at the begin of each day. Days are made by taking a day from all
// times that are recorded.
func TestSimulation(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano())
		w.Logf("seed %d", seed)
		for _, repo := range []string{"sim", "real"} {
			w.push("shop/"+repo, "first", "first")
			if err := w.update("shop", repo, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"side": repo}) }); err != nil {
				w.Fatal(err)
			}
		}
		failing := 0
		for round := uint64(0); round < 4 || failing == 0 && round < 100; round++ {
			for !w.simulate(rand.New(rand.NewPCG(seed, round)), &failing) { // midnight came
			}
		}
		if failing == 0 {
			w.Error("no pull failed in any round")
		}
	})
}

// simulate compares one world, unless a day ends.
func (w *world) simulate(random *rand.Rand, failing *int) bool {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	w.now = today
	for _, table := range []string{"pull_days", "tags", "tag_days"} {
		w.registry.WritePulls()
		w.Exec(`DELETE FROM ` + table)
	}
	tags := []string{"a0", "a1", "a2", "b0", "b1"}
	rules := []string{}
	for range 1 + random.IntN(2) {
		rules = append(rules, fmt.Sprintf(`{"tags":[%q],"keepLast":%d,"keepFor":"%dh","by":%q}`,
			[]string{"a*", "*", "*"}[random.IntN(3)], 1+random.IntN(2), 24*random.IntN(3)*random.IntN(2), []string{"Push", "Pull"}[random.IntN(2)]))
	}
	for _, repo := range []string{"sim", "real"} {
		spec := fmt.Sprintf(`{"selector":{"matchLabels":{"side":%q}},"rules":[%s]}`, repo, strings.Join(rules, ","))
		w.policy(repo, spec, repo == "real")
	}
	collect := func() {
		w.Exec(`UPDATE gc_manifest_review_queue SET review_after = 0`)
		w.collect()
	}
	second := 0
	tick := func() int64 { second++; return today.Add(time.Duration(second) * time.Second).UnixMilli() }
	want := map[string]int64{}
	const days = 6
	for n := range days {
		w.retain()
		collect()
		for range 1 + random.IntN(3) {
			tag, at, remove, content := tags[random.IntN(len(tags))], tick(), random.IntN(5) == 0, fmt.Sprint(random.IntN(3))
			for _, repo := range []string{"shop/sim", "shop/real"} {
				if remove {
					w.do("DELETE", "/v2/"+repo+"/manifests/"+tag, "", "")
					continue
				}
				w.push(repo, tag, content)
				w.Exec(`UPDATE tags SET updated_at = $1 WHERE name = $2 AND repository_id = (SELECT id FROM repositories WHERE path = $3)`, at, tag, repo)
				w.Exec(`UPDATE tag_days SET pushed_at = $1 WHERE name = $2 AND day = $4 AND repository_id = (SELECT id FROM repositories WHERE path = $3)`, at, tag, repo, today.Unix()/86400)
			}
		}
		collect()
		for range 3 + random.IntN(8) {
			tag, at := tags[random.IntN(len(tags))], tick()
			reference := tag
			if random.IntN(3) == 0 {
				tag = ""
				_, reference, _ = image(fmt.Sprint(random.IntN(3)))
			}
			var codes []int
			for _, repo := range []string{"shop/sim", "shop/real"} {
				a := w.do("GET", "/v2/"+repo+"/manifests/"+reference, "", "")
				codes = append(codes, a.Code)
				w.registry.WritePulls()
				w.Exec(`UPDATE pull_days SET pulled_at = $1 WHERE digest = $2 AND name = $5 AND day = $4 AND repository_id = (SELECT id FROM repositories WHERE path = $3)`,
					at, a.Header().Get("Docker-Content-Digest"), repo, today.Unix()/86400, tag)
				w.Exec(`UPDATE tags SET pulled_at = $1 WHERE manifest_id IN (
					SELECT m.id FROM manifests m JOIN repositories r ON r.id = m.repository_id WHERE m.digest = $2 AND r.path = $3)`, at, a.Header().Get("Docker-Content-Digest"), repo)
			}
			if codes[0] == 200 && codes[1] == 404 {
				day := today.AddDate(0, 0, n+1-days).Format(time.DateOnly)
				separator := map[bool]string{true: "@", false: ":"}[strings.HasPrefix(reference, "sha256:")]
				want[day+" "+separator+reference]++
			}
		}
		if n < days-1 {
			w.Exec(`UPDATE tags SET updated_at = updated_at - 86400000, pulled_at = pulled_at - 86400000`)
			w.Exec(`UPDATE tag_days SET day = day - 100000, was_pushed_at = was_pushed_at - 86400000, pushed_at = pushed_at - 86400000`)
			w.Exec(`UPDATE pull_days SET day = day - 100000, pulled_at = pulled_at - 86400000`)
			w.Exec(`UPDATE tag_days SET day = day + 99999`)
			w.Exec(`UPDATE pull_days SET day = day + 99999`)
		}
	}
	if !time.Now().UTC().Truncate(24 * time.Hour).Equal(today) {
		return false
	}
	plan, err := w.retention.Plan(w.Context(), "shop", "sim", 31)
	if err != nil {
		w.Fatal(err)
	}
	got := map[string]int64{}
	for _, repo := range plan.Repositories {
		for _, f := range repo.Failed {
			if repo.Repository == "shop/sim" {
				got[f.Day+" "+f.Reference] += f.Pulls
			}
		}
	}
	*failing += len(want)
	said := 0
	for _, line := range plan.Lines() {
		if strings.Contains(line, " pulls would have failed: policy sim") {
			said++
		}
	}
	if said != len(want) {
		w.Errorf("of %d failures the text has %d", len(want), said)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("rules %v:\nsimulated %v\nhappened  %v\nchanges:\n%s\npulls:\n%s", rules, got, want,
			strings.Join(w.Strings(`SELECT day || ' ' || name || ' ' || coalesce(substr(was_digest, 8, 4), '-') || ' ' || coalesce(substr(digest, 8, 4), '-')
				FROM tag_days d JOIN repositories r ON r.id = d.repository_id WHERE r.path = 'shop/sim' ORDER BY day, name`), "\n"),
			strings.Join(w.Strings(`SELECT day || ' ' || d.name || ' ' || substr(digest, 8, 4) || ' ' || pulls
				FROM pull_days d JOIN repositories r ON r.id = d.repository_id WHERE r.path = 'shop/sim' ORDER BY day, d.name`), "\n"))
	}
	return true
}
