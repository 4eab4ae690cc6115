package console

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/exeunt/exeunt/test/harness"
)

// tab is a page in a real browser. Every error that the browser reports fails the test.
type tab struct {
	t      *testing.T
	ctx    context.Context
	server *harness.Server

	mu      sync.Mutex
	errors  []string // guarded by mu
	ignored []string // parts of errors that the story causes on purpose; guarded by mu
}

// openTab starts a browser of its own, with no cookies.
func openTab(t *testing.T, s *harness.Server) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: run the tests through make, or script/chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("ignore-certificate-errors", true), // the browser does not know the server's CA
		chromedp.WSURLReadTimeout(2*time.Minute),         // a first start on a busy machine
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // it logs events that it does not know
	p := &tab{t: t, ctx: ctx, server: s}
	chromedp.ListenTarget(ctx, p.listen)
	t.Cleanup(func() {
		leave()
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range p.errors {
			t.Errorf("the browser reports: %s", e)
		}
	})
	p.run(cdplog.Enable(), runtime.Enable())
	return p
}

func (p *tab) listen(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.APITypeError && e.Type != runtime.APITypeWarning {
			return
		}
		for _, a := range e.Args {
			text += string(a.Value) + a.Description + " "
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level != cdplog.LevelError && e.Entry.Level != cdplog.LevelWarning {
			return
		}
		text = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.ignored {
		if strings.Contains(text, part) {
			return
		}
	}
	p.errors = append(p.errors, text)
}

// expect says that the browser may report errors with this text: those of a request that
// the server refuses on purpose.
func (p *tab) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignored = append(p.ignored, part)
}

func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, harness.Patience)
	defer cancel()
	if p.ctx.Err() == nil && chromedp.FromContext(p.ctx).Target == nil {
		ctx = p.ctx // the first run starts the browser, which must not end at a deadline
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.shoot("failed")
		p.t.Fatalf("browser: %v", err)
	}
}

// link makes a one-time link as the user of a kubeconfig.
func (p *tab) link() string {
	p.t.Helper()
	result := p.server.Exeunt(p.t, "console")
	if result.Code != 0 {
		p.t.Fatalf("exeunt console: %s", result.Stderr)
	}
	return strings.TrimSpace(result.Stdout)
}

// signIn opens the page as the administrator.
func (p *tab) signIn() {
	p.t.Helper()
	p.run(navigate(p.link()))
	p.see("Sign out")
}

// open goes to a page of the console.
func (p *tab) open(hash string) {
	p.t.Helper()
	p.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q; 0", hash), nil))
}

// eval runs an expression in the page.
func (p *tab) eval(expression string, into any) {
	p.t.Helper()
	p.run(chromedp.Evaluate(expression, into))
}

// see waits until the page shows a text.
func (p *tab) see(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("shows %q", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// until waits for a condition in the page. While the browser goes from one page to the
// next there is no body, and a script may be cut off: the condition is asked again.
func (p *tab) until(what, condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, harness.Patience)
	defer cancel()
	for {
		var ok bool
		err := chromedp.Run(ctx, chromedp.Evaluate("!!("+condition+")", &ok))
		if ok {
			return
		}
		if ctx.Err() != nil {
			var text string
			p.eval("document.body.innerText", &text)
			p.shoot("failed")
			p.t.Fatalf("the page does not have: %s (last error: %v). It shows:\n%s", what, err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// click waits for an element that can be clicked, and clicks it.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.until("an enabled "+selector, fmt.Sprintf("(e => e && !e.disabled)(document.querySelector(%q))", selector))
	p.run(chromedp.Click(selector, chromedp.ByQuery))
}

// press clicks the button or link with this text.
func (p *tab) press(text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] button, dialog[open] a")].concat([...document.querySelectorAll("button, a")]).find(e => (e.innerText || "").trim() === %q && !e.disabled)`, text)
	p.until("a button "+text, fmt.Sprintf("(e => e && (e.click(), true))(%s)", find))
}

// write types into a field.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.until("a field "+selector, fmt.Sprintf("document.querySelector(%q)", selector))
	p.run(chromedp.SendKeys(selector, text, chromedp.ByQuery))
}

// shoot saves a picture to the directory in EXEUNT_TEST_PICTURES.
func (p *tab) shoot(name string) {
	dir := os.Getenv("EXEUNT_TEST_PICTURES")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, harness.Patience)
	defer cancel()
	var picture []byte
	err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(p.t.Name(), "/", "-")+"-"+name+".png"), picture, 0o600)
	}
	if err != nil {
		p.t.Logf("no picture %s: %v", name, err)
	}
}

// axe is axe-core 4.14, which checks accessibility.
//
//go:embed testdata/axe.min.js
var axe string

// accessible fails for every serious violation that axe-core finds in the page.
func (p *tab) accessible(name string) {
	p.t.Helper()
	var loaded bool
	p.eval("typeof window.axe === 'object'", &loaded)
	if !loaded {
		p.eval(axe+"; 0", nil) // the debugger is exempt from the Content-Security-Policy
	}
	var found []string
	p.run(evaluateAsync(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 150)).join(" ")))`, &found))
	for _, violation := range found {
		p.t.Errorf("accessibility of %s: %s", name, violation)
	}
}

// navigate opens an address.
func navigate(url string) chromedp.Action { return chromedp.Navigate(url) }

// evaluateAsync evaluates an expression and waits for the promise that it returns.
func evaluateAsync(expression string, into any) chromedp.Action {
	return chromedp.Evaluate(expression, into, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}

// key presses a key without typing a character.
func (p *tab) key(name string) {
	p.t.Helper()
	p.run(input.DispatchKeyEvent(input.KeyRawDown).WithKey(name), input.DispatchKeyEvent(input.KeyUp).WithKey(name))
}

// keys types into the element that has the focus.
func (p *tab) keys(text string) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(text))
}
