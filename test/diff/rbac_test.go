//go:build diff

package diff

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	rbacPath = "/apis/rbac.authorization.k8s.io/v1"
	rbacRef  = "apiGroup: rbac.authorization.k8s.io"
	reviews  = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// TestRBAC compares decisions: the named cases of testdata/rbac, with reasons and
// texts, and 200 reviews of generated roles, bindings and requests.
func TestRBAC(t *testing.T) {
	ours, theirs := startBoth(t)
	t.Run("named", func(t *testing.T) {
		runBoth(t, "rbac", readScript(t, "testdata/rbac/named.txt"), ours, theirs)
	})
	t.Run("generated", func(t *testing.T) {
		g := generator{rand.New(rand.NewPCG(16, 200))}
		setup := g.setup()
		cases := g.cases(200)
		answers, _ := runBoth(t, "generated", append(setup, cases...), ours, theirs)
		allowed := 0
		for _, answer := range answers[len(setup):] {
			if harness.Field(answer, "body.status.allowed") == "true" {
				allowed++
			}
		}
		t.Logf("%d of %d allowed", allowed, len(cases))
		if allowed < 40 || allowed > 160 {
			t.Errorf("the generated cases are one-sided: %d of %d allowed", allowed, len(cases))
		}
	})
}

// generator makes roles, bindings and requests from few names, so that many requests meet
// a rule.
type generator struct{ *rand.Rand }

var (
	genVerbs     = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	genGroups    = []string{"", "apps"}
	genResources = []string{"pods", "configmaps", "widgets"}
	genSub       = []string{"status", "scale", "log"}
	genNames     = []string{"a", "b", "c"}
	genURLs      = []string{"/metrics", "/healthz", "/logs", "/logs/a"}
	genUsers     = []string{"u0", "u1", "u2"}
	genTeams     = []string{"g0", "g1", "g2"}
	genSpaces    = []string{"gen0", "gen1"}
)

func (g generator) one(from []string) string { return from[g.IntN(len(from))] }

// some returns up to three values, quoted, sometimes with a wildcard.
func (g generator) some(from []string, wild string) string {
	list := []string{g.one(from), g.one(from), g.one(from)}[:1+g.IntN(3)]
	if g.IntN(4) == 0 {
		list = append(list, wild)
	}
	return `["` + strings.Join(list, `", "`) + `"]`
}

// setup returns the steps that create the objects and wait until both servers follow them.
func (g generator) setup() (steps []step) {
	post := func(path, body string) {
		steps = append(steps, step{name: fmt.Sprintf("setup %d", len(steps)), method: "POST", target: path, body: body})
	}
	for _, ns := range genSpaces {
		post("/api/v1/namespaces", "{metadata: {name: "+ns+"}}")
	}
	for i := range 15 {
		post(rbacPath+"/clusterroles", fmt.Sprintf("{metadata: {name: gen-%d}, rules: [%s]}", i, g.rules(true)))
		ns := g.one(genSpaces)
		post(rbacPath+"/namespaces/"+ns+"/roles", fmt.Sprintf("{metadata: {name: gen-%d}, rules: [%s]}", i, g.rules(false)))
		kind := g.one([]string{"Role", "ClusterRole"})
		post(rbacPath+"/namespaces/"+ns+"/rolebindings", fmt.Sprintf("{metadata: {name: gen-%d}, roleRef: {%s, kind: %s, name: gen-%d}, subjects: [%s, %s, %s]}", i, rbacRef, kind, i, g.subject(), g.subject(), g.subject()))
		if i%3 == 0 {
			post(rbacPath+"/clusterrolebindings", fmt.Sprintf("{metadata: {name: gen-%d}, roleRef: {%s, kind: ClusterRole, name: gen-%d}, subjects: [%s, %s]}", i, rbacRef, i, g.subject(), g.subject()))
		}
	}
	rules := `[{apiGroups: [""], resources: [nodes], verbs: [get]}]`
	post(rbacPath+"/clusterroles", "{metadata: {name: gen-last}, rules: "+rules+"}")
	post(rbacPath+"/namespaces/gen0/roles", "{metadata: {name: gen-last}, rules: "+rules+"}")
	post(rbacPath+"/clusterrolebindings", "{metadata: {name: gen-last}, roleRef: {"+rbacRef+", kind: ClusterRole, name: gen-last}, subjects: [{"+rbacRef+", kind: User, name: last-cluster-user}]}")
	post(rbacPath+"/namespaces/gen0/rolebindings", "{metadata: {name: gen-last}, roleRef: {"+rbacRef+", kind: Role, name: gen-last}, subjects: [{"+rbacRef+", kind: User, name: last-user}]}")
	for _, user := range []string{"last-cluster-user", "last-user"} {
		post(reviews, "{spec: {user: "+user+", resourceAttributes: {verb: get, resource: nodes, namespace: gen0}}}")
		steps[len(steps)-1].until = [2]string{"body.status.allowed", "true"}
	}
	return steps
}

func (g generator) rules(urls bool) string {
	var rules []string
	for range 2 + g.IntN(3) {
		if urls && g.IntN(4) == 0 {
			rules = append(rules, fmt.Sprintf("{nonResourceURLs: %s, verbs: %s}", g.some(genURLs, "/logs/*"), g.some(genVerbs, "*")))
			continue
		}
		resources := g.some(genResources, "*")
		if g.IntN(3) == 0 {
			resources = fmt.Sprintf(`["%s/%s"]`, g.one(append(genResources, "*")), g.one(genSub))
		}
		names := ""
		if g.IntN(3) == 0 {
			names = ", resourceNames: " + g.some(genNames, "d")
		}
		rules = append(rules, fmt.Sprintf("{apiGroups: %s, resources: %s, verbs: %s%s}", g.some(genGroups, "*"), resources, g.some(genVerbs, "*"), names))
	}
	return strings.Join(rules, ", ")
}

func (g generator) subject() string {
	switch g.IntN(3) {
	case 0:
		return fmt.Sprintf("{%s, kind: User, name: %s}", rbacRef, g.one(genUsers))
	case 1:
		return fmt.Sprintf("{%s, kind: Group, name: %s}", rbacRef, g.one(genTeams))
	}
	return fmt.Sprintf("{kind: ServiceAccount, namespace: %s, name: robot}", g.one(genSpaces))
}

// cases returns reviews.
func (g generator) cases(n int) (steps []step) {
	for i := range n {
		user, groups := g.one(genUsers), []string{g.one(genTeams), "system:authenticated"}
		if g.IntN(4) == 0 {
			ns := g.one(genSpaces)
			user, groups = "system:serviceaccount:"+ns+":robot", []string{"system:serviceaccounts", "system:serviceaccounts:" + ns}
		}
		attributes := fmt.Sprintf("nonResourceAttributes: {verb: %s, path: %s}", g.one(genVerbs), g.one(genURLs))
		if g.IntN(6) != 0 {
			attributes = fmt.Sprintf(`resourceAttributes: {verb: %s, group: "%s", resource: %s, subresource: "%s", namespace: "%s", name: "%s"}`,
				g.one(genVerbs), g.one(genGroups), g.one(genResources), g.one(append(genSub, "", "", "")), g.one(append(genSpaces, genSpaces[0], "")), g.one(append(genNames, "")))
		}
		steps = append(steps, step{
			name: fmt.Sprintf("case %d", i), method: "POST", target: reviews, decision: true,
			body: fmt.Sprintf(`{spec: {user: "%s", groups: ["%s"], %s}}`, user, strings.Join(groups, `", "`), attributes),
		})
	}
	return steps
}
