// Command screenshots runs the demo and takes pictures of the console during it, in both
// colour schemes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/test/demo"
)

func main() {
	var c demo.Config
	flag.StringVar(&c.Exeunt, "exeunt", "bin/exeunt", "the program")
	flag.StringVar(&c.Kubectl, "kubectl", "kubectl", "kubectl")
	flag.StringVar(&c.Examples, "examples", "examples/shop", "directory of the shop")
	into := flag.String("into", "docs/images", "where the pictures go")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, *into); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c demo.Config, into string) (err error) {
	for _, path := range []*string{&c.Exeunt, &c.Kubectl, &c.Examples, &into} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	if c.Dir, err = os.MkdirTemp("", "exeunt-screenshots-"); err != nil {
		return err
	}
	a := &artist{exeunt: c.Exeunt, into: into}
	c.Out, c.Scene = io.Discard, a.scene
	_, err = demo.Run(ctx, c)
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// artist takes the pictures.
type artist struct {
	exeunt, into string
}

// scenes are the pages to draw after each act: name and address of each.
var scenes = map[string][][2]string{
	"create": {
		{"object", "#/object/example.dev/apps/shop/shop"}, {"delete", "#/delete/example.dev/apps/shop/shop"},
		{"registry", "#/registry/shop/web"}, {"machines", "#/machines"}, {"objects", "#/objects/core/pods"},
	},
	"delete":        {{"now", "#/now"}, {"archive", "#/archive"}},
	"deleteForGood": {{"now-after", "#/now"}},
}

func (a *artist) scene(ctx context.Context, act, kubeconfig string) error {
	for _, dark := range []bool{false, true} {
		if len(scenes[act]) == 0 {
			return nil
		}
		if err := a.draw(ctx, scenes[act], kubeconfig, dark); err != nil {
			return err
		}
	}
	return nil
}

// draw signs in and takes pictures of the pages in one colour scheme.
func (a *artist) draw(ctx context.Context, pages [][2]string, kubeconfig string, dark bool) error {
	cmd := exec.CommandContext(ctx, a.exeunt, "console")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	link, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("exeunt console: %w", err)
	}
	scheme, suffix := "light", ""
	if dark {
		scheme, suffix = "dark", "-dark"
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(os.Getenv("EXEUNT_TEST_CHROMIUM")), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.Flag("ignore-certificate-errors", true))
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	tab, leave := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	defer leave()
	emulate := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
	if err := chromedp.Run(tab, emulate, chromedp.Navigate(strings.TrimSpace(string(link))), chromedp.WaitVisible(".bar", chromedp.ByQuery)); err != nil {
		return err
	}
	for _, page := range pages {
		var picture []byte
		err := chromedp.Run(tab, chromedp.Evaluate(fmt.Sprintf("location.hash = %q; 0", page[1]), nil),
			chromedp.Sleep(2500*time.Millisecond), // until watches and polls have answered
			chromedp.CaptureScreenshot(&picture))
		if err == nil {
			err = os.WriteFile(filepath.Join(a.into, page[0]+suffix+".png"), picture, 0o644)
		}
		if err != nil {
			return fmt.Errorf("draw %s: %w", page[0], err)
		}
	}
	return nil
}
