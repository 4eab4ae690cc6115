package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/exeunt/exeunt/test/harness"
)

// second opens the address of a tab in a second tab of the same browser, for check, and closes it.
func (p *tab) second(check func(*tab)) {
	p.t.Helper()
	var address string
	p.eval("location.href", &address)
	ctx, leave := chromedp.NewContext(p.ctx)
	chromedp.ListenTarget(ctx, p.listen)
	other := &tab{t: p.t, ctx: ctx, server: p.server}
	other.run(navigate(address))
	other.see("Sign out")
	check(other)
	leave()
	p.run(page.BringToFront()) // a tab in the background draws nothing
}

// pick chooses an option of a list.
func (p *tab) pick(selector, value string) {
	p.t.Helper()
	p.until("the option "+value, fmt.Sprintf(`(e => e && [...e.options].some(o => o.value === %q) && (e.value = %q, e.dispatchEvent(new Event("change")), true))(document.querySelector(%q))`, value, value, selector))
}

// back goes back in the history.
func (p *tab) back() {
	p.t.Helper()
	p.run(chromedp.Evaluate("history.back(); 0", nil))
}

// TestAddress: the namespace, filters, the selected row and the policy are in the address. They survive a reload, Back and a
// second tab.
func TestAddress(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	must(t, s, "create", "namespace", "shop")
	for _, name := range []string{"apple", "apricot", "pear"} {
		must(t, s, "create", "configmap", name, "-n", "shop")
		must(t, s, "create", "configmap", name, "-n", "default")
	}
	must(t, s, "label", "configmap", "apple", "apricot", "-n", "shop", "kind=a")
	p := openTab(t, s)
	p.signIn()

	// The namespace follows the user from page to page. Back undoes the choice.
	p.open("#/objects")
	p.see("in all namespaces")
	p.pick("select.namespace", "shop")
	p.see("in namespace shop")
	p.back()
	p.see("in all namespaces")
	p.until("its address", `location.hash === "#/objects" && document.querySelector("select.namespace").value === ""`)
	p.run(chromedp.Evaluate("history.forward(); 0", nil))
	p.see("in namespace shop")
	p.press("Archive")
	p.until("the address of Archive", `location.hash === "#/archive?ns=shop"`)
	p.open("#/objects/core/configmaps")
	p.see("4 objects in shop") // and kube-root-ca.crt
	p.until("its address", `location.hash === "#/objects/core/configmaps?ns=shop"`)

	// Filters by keyboard, and a row.
	p.write("input[aria-label='Filter by name']", "ap")
	p.see("2 of 4 objects in shop")
	p.until("the focus stays", `document.activeElement.ariaLabel === "Filter by name"`)
	p.write("input[aria-label='Label selector']", "kind=a\r")
	p.pick("select[aria-label=Show]", "orphans")
	p.until("all filters", `location.hash === "#/objects/core/configmaps?ns=shop&q=ap&labels=kind%3Da&show=orphans"`)
	filtered := func(p *tab) {
		t.Helper()
		p.see("2 of 2 objects in shop")
		p.until("the filters", `document.querySelector("input[aria-label='Filter by name']").value === "ap" && document.querySelector("input[aria-label='Label selector']").value === "kind=a" && document.querySelector("select[aria-label=Show]").value === "orphans"`)
	}
	p.second(filtered)
	p.reload()
	filtered(p)
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("j")
	p.key("j")
	p.until("a row", `document.querySelector("tr.selected")?.innerText.includes("apricot")`)
	p.key("Enter")
	p.see("Ownership")
	p.back()
	filtered(p)
	p.until("the row again", `document.querySelector("tr.selected")?.innerText.includes("apricot")`)

	// The policy of a plan, also in the address by name.
	p.open("#/delete/core/configmaps/shop/pear?policy=Orphan")
	p.see("What happens: orphan")
	p.click(`input[value="Foreground"]`)
	p.see("What happens: foreground")
	if a := p.address(); !strings.HasSuffix(a, "/plan?policy=Foreground&ns=shop") {
		t.Errorf("the plan is at %s", a)
	}
	p.second(func(p *tab) { p.see("What happens: foreground") })
	p.reload()
	p.see("What happens: foreground")
	p.press("Objects")
	p.see("in namespace shop")
	p.back()
	p.see("What happens: foreground")

	// A value that means nothing is the default.
	p.open(strings.ReplaceAll(p.address(), "Foreground", "%3Cimg%3E"))
	p.see("What happens: background")
	p.open("#/objects/core/configmaps?ns=shop&show=nothing")
	p.see("4 objects in shop")
	p.open("#/archive?q=nothing-like-it")
	p.see("Nothing matches the filter.")
}
