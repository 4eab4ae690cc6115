package console

import (
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/exeunt/exeunt/test/harness"
)

// tab is a page in a real browser. Every error that the browser reports fails the test.
type tab struct {
	t      *testing.T
	ctx    context.Context
	server *harness.Server
	// keyboard: press, click and write use the keys alone.
	keyboard bool
	// role is view or edit, and user that user's name. Empty role: the administrator.
	role, user string

	mu      sync.Mutex
	errors  []string // guarded by mu
	ignored []string // parts of errors that the story causes on purpose; guarded by mu
}

// chromium is the browser of all tests, which TestMain stops.
var chromium struct {
	sync.Once
	ctx  context.Context
	stop context.CancelFunc
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
		os.RemoveAll(chromium.dir)
	}
	os.Exit(code)
}

func startChromium() {
	program := os.Getenv("EXEUNT_TEST_CHROMIUM")
	if program == "" {
		chromium.err = errors.New("EXEUNT_TEST_CHROMIUM is not set: run the tests through make, or script/chromium")
		return
	}
	if chromium.dir, chromium.err = os.MkdirTemp("", "exeunt-chromium-"); chromium.err != nil {
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.UserDataDir(chromium.dir),
		chromedp.Flag("ignore-certificate-errors", true), // the browser does not know the server's CA
		chromedp.WSURLReadTimeout(2*time.Minute),         // a first start on a busy machine
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // it logs events that it does not know
	chromium.ctx, chromium.stop = ctx, func() { leave(); stop() }
	chromium.err = chromedp.Run(ctx)
}

// openTab opens a tab with cookies and storage of its own.
func openTab(t *testing.T, s *harness.Server) *tab {
	t.Helper()
	if chromium.Do(startChromium); chromium.err != nil {
		t.Fatal(chromium.err)
	}
	browser := cdp.WithExecutor(chromium.ctx, chromedp.FromContext(chromium.ctx).Browser)
	profile, err := target.CreateBrowserContext().Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := chromedp.NewContext(chromium.ctx, chromedp.WithTargetID(id))
	chromedp.FromContext(ctx).BrowserContextID = profile // for a second tab
	p := &tab{t: t, ctx: ctx, server: s}
	chromedp.ListenTarget(ctx, p.listen)
	t.Cleanup(func() {
		leave()
		if err := target.DisposeBrowserContext(profile).Do(browser); err != nil {
			t.Errorf("close the tabs: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range p.errors {
			t.Errorf("the browser reports: %s", e)
		}
	})
	p.run(cdplog.Enable(), runtime.Enable())
	p.serveFrom(os.Getenv("EXEUNT_TEST_STATIC"))
	return p
}

// serveFrom has the browser read the page's files from a directory in place of the program, if one is given: a change of
// them needs no build.
func (p *tab) serveFrom(dir string) {
	p.t.Helper()
	if dir == "" {
		return
	}
	chromedp.ListenTarget(p.ctx, func(event any) {
		paused, ok := event.(*fetch.EventRequestPaused)
		if !ok {
			return
		}
		go func() {
			ctx := cdp.WithExecutor(p.ctx, chromedp.FromContext(p.ctx).Target)
			_, name, _ := strings.Cut(paused.Request.URL, "/console/")
			body, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
			if name == "" || err != nil {
				_ = fetch.ContinueRequest(paused.RequestID).Do(ctx) // an error means that the page was left
				return
			}
			headers := slices.DeleteFunc(paused.ResponseHeaders, func(h *fetch.HeaderEntry) bool {
				return strings.EqualFold(h.Name, "Content-Encoding") || strings.EqualFold(h.Name, "Content-Length") || strings.EqualFold(h.Name, "ETag")
			})
			if paused.ResponseStatusCode != 200 { // a file that the program does not have
				headers = []*fetch.HeaderEntry{{Name: "Content-Type", Value: "text/javascript; charset=utf-8"}}
			}
			_ = fetch.FulfillRequest(paused.RequestID, 200).WithResponseHeaders(headers).WithBody(base64.StdEncoding.EncodeToString(body)).Do(ctx)
		}()
	})
	p.run(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/console/*.js", RequestStage: fetch.RequestStageResponse}, {URLPattern: "*/console/*.css", RequestStage: fetch.RequestStageResponse}}))
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
	if p.keyboard {
		find := fmt.Sprintf("document.querySelector(%q)", selector)
		var radio bool
		if p.eval(find+`.type === "radio"`, &radio); radio { // Tab goes to the chosen one of a group, the arrows to the others
			p.reach(selector, fmt.Sprintf("document.querySelector(`input[name=\"${%s.name}\"]:checked`)", find))
			for range 9 {
				var chosen bool
				if p.eval(find+".checked", &chosen); chosen {
					break
				}
				p.keys(kb.ArrowDown)
			}
		} else {
			p.reach(selector, find)
			p.run(chromedp.KeyEvent(" "))
		}
		return
	}
	for range 5 { // a page that still loads may move the element away from under the mouse
		p.eval(fmt.Sprintf(`window.missed = true; document.querySelector(%q).addEventListener("click", () => { window.missed = false; }, {once: true, capture: true}); 0`, selector), nil)
		p.run(chromedp.Click(selector, chromedp.ByQuery))
		var missed bool
		if p.eval("window.missed === true", &missed); !missed {
			return
		}
	}
	p.t.Fatalf("%s does not get the click", selector)
}

// press uses the button or link with this text, or with this label: with the mouse, or in a story of the keyboard with its keys.
func (p *tab) press(text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] button, dialog[open] a")].concat([...document.querySelectorAll("button, a, summary")]).find(e => ((e.innerText || "").trim() === %[1]q || e.ariaLabel === %[1]q) && !e.disabled)`, text)
	if p.keyboard {
		p.reach(text, find)
		p.keys("\r")
		return
	}
	p.until("a button "+text, fmt.Sprintf("(e => e && (e.click(), true))(%s)", find))
}

// reach moves the focus with the Tab key to the element that an expression finds.
func (p *tab) reach(what, find string) {
	p.t.Helper()
	p.until("an element "+what, find)
	for range 400 {
		var there bool
		if p.eval(fmt.Sprintf(`(e => e && e === document.activeElement)(%s)`, find), &there); there {
			return
		}
		p.keys(kb.Tab)
	}
	p.shoot("failed")
	p.t.Fatalf("%s: 400 times Tab do not lead there", what)
}

// write types into a field.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.until("a field "+selector, fmt.Sprintf("document.querySelector(%q)", selector))
	if p.keyboard {
		p.reach(selector, fmt.Sprintf("document.querySelector(%q)", selector))
		p.keys(text)
		return
	}
	p.run(chromedp.SendKeys(selector, text, chromedp.ByQuery))
}

// fill replaces the text of a field.
func (p *tab) fill(selector, text string) {
	p.t.Helper()
	p.write(selector, "")
	p.run(chromedp.Focus(selector, chromedp.ByQuery), input.DispatchKeyEvent(input.KeyRawDown).WithKey("a").WithModifiers(input.ModifierCtrl).WithCommands([]string{"selectAll"}),
		input.DispatchKeyEvent(input.KeyUp).WithKey("a"))
	p.keys(strings.ReplaceAll(text, "\n", "\r"))
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

// accessible fails for every violation that axe-core finds in the page.
func (p *tab) accessible(name string) {
	p.t.Helper()
	var loaded bool
	p.eval("typeof window.axe === 'object'", &loaded)
	if !loaded {
		p.eval(axe+"; 0", nil) // the debugger is exempt from the Content-Security-Policy
	}
	var found []string
	p.run(evaluateAsync(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 150)).join(" ")))`, &found))
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
