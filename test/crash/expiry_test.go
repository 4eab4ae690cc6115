package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/harness"
)

const expiryPolicies = "/apis/lifecycle.exeunt.dev/v1/namespaces/default/expirypolicies"

// expiring is a test of policies on servers that are killed: one on SQLite, two on PostgreSQL.
type expiring struct {
	*testing.T
	servers []*harness.Server
	fleet   fleet
}

func eachExpiring(t *testing.T, test func(e *expiring)) {
	harness.Both(t, func(t *testing.T, s *harness.Server) {
		e := &expiring{T: t, servers: []*harness.Server{s}}
		if s.Engine == harness.Postgres {
			e.servers = append(e.servers, s.Replica(t))
		}
		for _, s := range e.servers {
			e.fleet = append(e.fleet, client(t, s))
		}
		test(e)
	})
}

// http is a client of the first server.
func (e *expiring) http() *harness.HTTP { return e.servers[0].HTTP() }

// killOne kills a server, or all, and starts them again.
func (e *expiring) killOne() {
	victims := e.servers
	if rand.IntN(4) > 0 {
		victims = []*harness.Server{e.servers[rand.IntN(len(e.servers))]}
	}
	for _, s := range victims {
		s.Kill()
	}
	for _, s := range victims {
		s.Start()
	}
}

// policy creates a policy that is started.
func (e *expiring) policy(name, spec string) {
	e.Helper()
	body := fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPolicy","metadata":{"name":%q,"annotations":{"lifecycle.exeunt.dev/start-expiry":"1"}},"spec":%s}`, name, spec)
	if a := e.http().Do(e, harness.Request{Method: "POST", Path: expiryPolicies, Body: body}); a.Code != 201 {
		e.Fatalf("create the policy %s: %d %s", name, a.Code, a.Body)
	}
}

// create creates a ConfigMap, also when a server is killed meanwhile.
func (e *expiring) create(name string, labels map[string]string, state string) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"state": state}}
	err := e.fleet.try(e.Context(), func(c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(e.Context(), cm, metav1.CreateOptions{})
		return err
	})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		e.Error(err)
	}
}

// left returns the names of the test's ConfigMaps.
func (e *expiring) left() (names []string) {
	e.Helper()
	var all corev1.ConfigMapList
	decode(e.T, e.http().Get(e, "/api/v1/namespaces/default/configmaps").Body, &all)
	for _, cm := range all.Items {
		if cm.Name != "kube-root-ca.crt" {
			names = append(names, cm.Name)
		}
	}
	return names
}

// archived returns the ConfigMaps in the archive by the policy that took them, and fails if one of them is there twice. A client whose server is
// killed while it creates an object tries again: if the first one has expired by then, there are two of one name.
func (e *expiring) archived(policy string) map[string]int {
	e.Helper()
	names := map[string]int{}
	by := ` FROM archive WHERE kind = 'configmaps' AND namespace = 'default' AND actor = 'system:exeunt:expiry:default/' || $1`
	for _, row := range e.servers[0].Query(`SELECT DISTINCT name`+by, policy) {
		names[strings.TrimSuffix(row, "\n")] = 1
	}
	if twice := e.servers[0].Query(`SELECT uid`+by+` GROUP BY uid HAVING count(*) > 1`, policy); len(twice) > 0 {
		e.Errorf("%s took twice: %v", policy, twice)
	}
	return names
}

// status returns a field of the status of a policy.
func (e *expiring) status(policy, field string) string {
	e.Helper()
	return e.http().Get(e, expiryPolicies+"/"+policy).Field("status." + field)
}

// preview returns what a policy takes until a time.
func (e *expiring) preview(policy string) (names []string) {
	e.Helper()
	a := e.http().Do(e, harness.Request{Method: "POST", Path: "/apis/lifecycle.exeunt.dev/v1/expirypreviews",
		Body: fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPreview","spec":{"namespace":"default","policy":%q,"until":"1h"}}`, policy)})
	var p struct {
		Status struct {
			Objects []struct {
				Object struct{ Name string } `json:"object"`
			} `json:"objects"`
		} `json:"status"`
	}
	if err := json.Unmarshal(a.Body, &p); err != nil || a.Code/100 != 2 {
		e.Fatalf("preview %s: %d %s, %v", policy, a.Code, a.Body, err)
	}
	for _, o := range p.Status.Objects {
		names = append(names, o.Object.Name)
	}
	slices.Sort(names)
	return names
}

// TestKillExpiry kills servers while policies count, walk and take objects, and while clients create others. In the end nothing is gone that
// no policy takes, nothing is left that is due, each object is once in the archive, and what was there when the policies came is what
// the previews said.
func TestKillExpiry(t *testing.T) {
	const before, during, kills = 400, 200, 5
	eachExpiring(t, func(e *expiring) {
		want := map[string]map[string]int{"young": {}, "closed": {}}
		var stay []string
		make := func(i int) {
			name, kind := fmt.Sprintf("o%04d", i), i%4
			labels := map[string]string{"group": []string{"young", "closed", "closed", "none"}[kind]}
			state := []string{"open", "closed", "open", "closed"}[kind]
			e.create(name, labels, state)
			switch kind {
			case 0:
				want["young"][name] = 1
			case 1:
				want["closed"][name] = 1
			default:
				stay = append(stay, name)
			}
		}
		for i := range before {
			make(i)
		}
		specs := map[string]string{
			"young":  `{"resources":["configmaps"],"selector":{"matchLabels":{"group":"young"}},"confirmAbove":{"objects":0},"expire":{"after":"2s"}}`,
			"closed": `{"resources":["configmaps"],"selector":{"matchLabels":{"group":"closed"}},"condition":"object.data.state == 'closed'","confirmAbove":{"objects":0},"expire":{"after":"0s"}}`,
		}
		for name, spec := range specs { // they observe first
			body := fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPolicy","metadata":{"name":"%s-seen"},"spec":%s}`, name, spec)
			if a := e.http().Do(e, harness.Request{Method: "POST", Path: expiryPolicies, Body: body}); a.Code != 201 {
				e.Fatalf("create a policy: %d %s", a.Code, a.Body)
			}
			said := e.preview(name + "-seen")
			if planned := len(said); planned != len(want[name]) {
				e.Errorf("the preview of %s has %d objects, want %d", name, planned, len(want[name]))
			}
			for _, o := range said {
				if want[name][o] == 0 {
					e.Errorf("the preview of %s has %s", name, o)
				}
			}
		}
		for name, spec := range specs {
			e.policy(name, spec)
		}
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		created := e.inBackground(func() {
			for i := before; i < before+during && ctx.Err() == nil; i++ {
				make(i)
			}
		})
		midway := 0
		for range kills {
			gone := len(e.archived("young")) + len(e.archived("closed"))
			harness.Until(t, "policies to take more", func() error {
				if now := len(e.archived("young")) + len(e.archived("closed")); now <= gone && now < before/2 {
					return fmt.Errorf("they took %d", now)
				}
				return nil
			})
			if len(e.left()) > len(stay) {
				midway++
			}
			e.killOne()
		}
		<-created
		if midway == 0 {
			e.Error("no kill was before the end: the test is void")
		}
		harness.Until(t, "what is due to go", func() error {
			left := e.left()
			if len(left) > len(stay) {
				return fmt.Errorf("%d objects are left, want %d", len(left), len(stay))
			}
			return nil
		})
		slices.Sort(stay)
		if left := e.left(); !slices.Equal(left, stay) {
			e.Errorf("%d objects are left of %d that no policy takes", len(left), len(stay))
		}
		for name, objects := range want {
			if got := e.archived(name); fmt.Sprint(got) != fmt.Sprint(objects) {
				e.Errorf("%s took %v, want %v", name, got, objects)
			}
		}
		e.Logf("%d of %d kills before the end", midway, kills)
	})
}

// inBackground runs fn; the channel is closed when it has returned.
func (e *expiring) inBackground(fn func()) <-chan struct{} {
	ended := make(chan struct{})
	go func() { defer close(ended); fn() }()
	return ended
}

// TestKillExpiryCount kills servers while a policy takes as many objects as it may in a day, and another as its rate lets it: no kill makes
// either forget what it took, also on two replicas that take at once.
func TestKillExpiryCount(t *testing.T) {
	const objects, most, kills = 200, 60, 4
	eachExpiring(t, func(e *expiring) {
		awayFromMidnight()
		for i := range objects {
			e.create(fmt.Sprintf("o%04d", i), map[string]string{"group": []string{"most", "rate"}[i%2]}, "")
		}
		spec := `{"resources":["configmaps"],"selector":{"matchLabels":{"group":"%s"}},"expire":{"after":"0s"},%s}`
		// It may take all when it is counted, so that it begins; what comes later is too much.
		e.policy("most", fmt.Sprintf(spec, "most", fmt.Sprintf(`"confirmAbove":{"objects":%d}`, objects/2)))
		e.policy("rate", fmt.Sprintf(spec, "rate", fmt.Sprintf(`"confirmAbove":{"objects":0},"rate":{"objects":%d,"per":"Day"}`, most)))
		harness.Until(t, "the policies to begin", func() error {
			if most, rate := len(e.archived("most")), len(e.archived("rate")); most == 0 || rate == 0 {
				return fmt.Errorf("they took %d and %d", most, rate)
			}
			return nil
		})
		for i := objects; i < 2*objects; i++ {
			if i%(objects/kills) == 0 {
				e.killOne()
			}
			e.create(fmt.Sprintf("o%04d", i), map[string]string{"group": "most"}, "")
		}
		check := func() (int, int) {
			e.Helper()
			mostTaken, rateTaken := len(e.archived("most")), len(e.archived("rate"))
			if mostTaken > objects/2 || rateTaken > most {
				e.Errorf("they took %d and %d objects, and may take %d and %d", mostTaken, rateTaken, objects/2, most)
			}
			return mostTaken, rateTaken
		}
		// A kill may count what is then not taken, never the other way round. So that is bounded, too.
		harness.Until(t, "the policy to wait", func() error {
			if state := e.status("most", "state"); state != `"Waiting"` {
				return fmt.Errorf("it is %s", state)
			}
			return nil
		})
		var taken, rated int
		harness.Until(t, "the rate to be used up", func() error {
			taken, rated = check()
			if counted := e.servers[0].Query(`SELECT CAST(in_slot AS text) FROM expiry_policies ORDER BY in_slot`); !slices.Contains(counted, fmt.Sprint(most)) {
				return fmt.Errorf("counted are %v", counted)
			}
			return nil
		})
		e.killOne()
		taken, rated = check()
		e.Logf("they took %d of %d, and %d of %d", taken, objects/2, rated, most)
		if taken == 0 || rated == 0 {
			e.Error("they took nothing: the test is void")
		}
	})
}

// awayFromMidnight waits while a day (UTC) may end during the test.
func awayFromMidnight() {
	for now := time.Now().UTC(); now.Add(5*time.Minute).Day() != now.Day(); now = time.Now().UTC() {
		time.Sleep(time.Second)
	}
}
