package console

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/exeunt/exeunt/test/harness"
)

// expired: the page of an object says when it expires, and keeps it; that of a policy says what it takes and when, and starts it.
func expired(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	in("create", "configmap", "old")
	in("annotate", "configmap", "old", "lifecycle.exeunt.dev/ttl=9d")
	in("label", "configmap", "old", "tmp=yes")
	p.open("#/object/core/configmaps/" + namespace + "/old")
	p.see("it expires in")
	p.accessible("an object that expires")
	if p.lacks("edit", "#keep", "it expires in") {
		in("annotate", "configmap", "old", "lifecycle.exeunt.dev/keep-until=forever")
	} else {
		p.fill("#keep-days", "3")
		p.fill("#keep-reason", "a demo")
		p.click("#keep")
		p.see("It is kept until")
		if got := in("get", "configmap", "old", "-o", "jsonpath={.metadata.annotations}"); !strings.Contains(got, `"lifecycle.exeunt.dev/keep-reason":"a demo"`) {
			p.t.Errorf("the annotations are %s", got)
		}
		p.shoot("kept")
		p.click("#keep-end")
		p.until("it is not kept", `document.querySelector("#expiry") && !document.querySelector("#expiry").innerText.includes("kept")`)
	}
	policy := fmt.Sprintf(`{apiVersion: lifecycle.exeunt.dev/v1, kind: ExpiryPolicy, metadata: {name: tmp, namespace: %s},
  spec: {resources: [configmaps], selector: {matchLabels: {tmp: "yes"}}, expire: {after: 3d}}}`, namespace)
	if r := s.KubectlCommand(p.t, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: policy}); r.Code != 0 {
		p.t.Fatal(r.Stderr)
	}
	in("annotate", "configmap", "old", "lifecycle.exeunt.dev/keep-until-")
	p.open("#/object/lifecycle.exeunt.dev/expirypolicies/" + namespace + "/tmp")
	p.see("1 object would go in 7d")
	p.until("a day and the object", `document.querySelectorAll("#days tbody tr").length === 1 && [...document.querySelectorAll("main a")].some(e => e.innerText.includes("old"))`)
	p.accessible("a policy of expiry")
	p.shoot("calendar")
	p.run(chromedp.Evaluate(`document.querySelector("#takes").same = true`, nil))
	if p.lacks("", "#start-expiry", "exeunt expiry start expirypolicy/tmp") {
		in("annotate", "expirypolicy", "tmp", "lifecycle.exeunt.dev/start-expiry=1")
	} else {
		p.click("#start-expiry")
	}
	p.see("1 object goes in 7d")
	p.until("the same place, while the new answer was on its way", `document.querySelector("#takes").same`)
	p.pick("#until", "1d")
	p.see("0 objects go in 1d")
}
