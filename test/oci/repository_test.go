package oci

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// soon makes reviews happen one second after their event.
const soon = "--registry-review-after=blob_upload=1s,manifest_upload=1s,manifest_delete=1s,layer_delete=1s,tag_delete=1s," +
	"tag_switch=1s,existence_check=1s,blob_delete=0s,upload_delete=0s"

// repositoryFlow runs kubectl and crane against the same repositories.
type repositoryFlow struct {
	*testing.T
	s  *harness.Server
	at string
}

func eachRepositoryFlow(t *testing.T, test func(f repositoryFlow), flags ...string) {
	t.Helper()
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			s := harness.Start(t, engine, flags...)
			test(repositoryFlow{t, s, s.Registry() + "/"})
		})
	}
}

// kubectl runs a command that must succeed, and returns its output.
func (f repositoryFlow) kubectl(args ...string) string {
	f.Helper()
	r := f.s.Kubectl(f, args...)
	if r.Code != 0 {
		f.Fatalf("kubectl %s: %s", strings.Join(args, " "), r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// exeunt runs a command of the program that must succeed, and returns its output.
func (f repositoryFlow) exeunt(args ...string) string {
	f.Helper()
	dir, err := harness.PluginDir()
	if err != nil {
		f.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "exeunt"), append(args, "--kubeconfig", f.s.Kubeconfig)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		f.Fatalf("exeunt %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// push pushes a new image. With quick reviews a slow machine may lose the layers before
// the manifest arrives, so it retries.
func (f repositoryFlow) push(ref string) v1.Image {
	f.Helper()
	img, err := random.Image(4<<10, 2)
	if err != nil {
		f.Fatal(err)
	}
	harness.Until(f, "push "+ref, func() error { return crane.Push(img, f.at+ref) })
	return img
}

func (f repositoryFlow) pulls(ref string, want v1.Image) {
	f.Helper()
	got, err := crane.Pull(f.at + ref)
	if err != nil {
		f.Fatalf("pull %s: %v", ref, err)
	}
	if err := validate.Image(got); err != nil {
		f.Errorf("pull %s: %v", ref, err)
	}
	a, errA := want.Digest()
	b, errB := got.Digest()
	if err := errors.Join(errA, errB); err != nil || a != b {
		f.Errorf("pull %s: %s, not %s: %v", ref, b, a, err)
	}
}

func (f repositoryFlow) gone(ref string) {
	f.Helper()
	harness.Until(f, ref+" to be gone", func() error {
		if _, err := crane.Pull(f.at + ref); err == nil {
			return errors.New("it can be pulled")
		} else if !strings.Contains(err.Error(), "NAME_UNKNOWN") {
			return err
		}
		return nil
	})
}

// refused pushes an image that the registry must refuse, with an error that contains text.
func (f repositoryFlow) refused(ref, text string) {
	f.Helper()
	img, err := random.Image(1<<10, 1)
	if err != nil {
		f.Fatal(err)
	}
	if err := crane.Push(img, f.at+ref); err == nil || !strings.Contains(err.Error(), "DENIED") || !strings.Contains(err.Error(), text) {
		f.Errorf("push %s: %v; want DENIED and %q", ref, err, text)
	}
}

// TestRepository: a repository is an object of the API, through its whole life.
func TestRepository(t *testing.T) {
	eachRepositoryFlow(t, func(f repositoryFlow) {
		f.appears()
		f.comesBack()
		f.goesWithItsOwner()
		f.refusesWhileDeleting()
		f.goesWithItsNamespace()
		f.undeletes()
	})
}

// appears: the first push creates the object, and its counters follow.
func (f repositoryFlow) appears() {
	f.push("shop/web:v1")
	f.push("shop/web:v2")
	f.push("web:v1")
	f.push("shop/team/api:v1")
	f.kubectl("wait", "--for=jsonpath={.status.tags}=2", "repository/web", "-n", "shop", "--timeout=30s")
	lines := strings.Split(f.kubectl("get", "repositories", "-n", "shop"), "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "NAME SIZE TAGS LAST PUSH RECLAIMABLE AGE" {
		f.Errorf("kubectl get repositories:\n%s", strings.Join(lines, "\n"))
	}
	if paths := f.kubectl("get", "repo", "-A", "-o", "jsonpath={.items[*].spec.path}"); paths != "web shop/team/api shop/web" {
		f.Errorf("paths: %s", paths)
	}
	for _, name := range []string{"repository.spec.reviewAfterSeconds", "repository.status.reclaimable"} {
		if text := f.kubectl("explain", name); !strings.Contains(text, "FIELD: ") || !strings.Contains(text, "<integer>") {
			f.Errorf("explain %s: %s", name, text)
		}
	}
	if r := f.s.Kubectl(f, "patch", "repository/web", "-n", "shop", "--type=merge", "-p", `{"spec":{"path":"shop/other"}}`); r.Code == 0 || !strings.Contains(r.Stderr, "belongs to the Repository other") {
		f.Errorf("a Repository with another path: %d %s", r.Code, r.Stderr)
	}
}

// comesBack: a deleted repository is gone at once, and a restore brings it back with its
// content.
func (f repositoryFlow) comesBack() {
	img := f.push("shop/back:v1")
	f.kubectl("delete", "repository/back", "-n", "shop")
	f.gone("shop/back:v1")
	f.exeunt("restore", "repository/back", "-n", "shop")
	f.pulls("shop/back:v1", img)
	f.push("shop/back:v2")
}

func (f repositoryFlow) goesWithItsOwner() {
	img := f.push("shop/owned:v1")
	f.kubectl("create", "configmap", "owner", "-n", "shop")
	uid := f.kubectl("get", "configmap/owner", "-n", "shop", "-o", "jsonpath={.metadata.uid}")
	f.kubectl("patch", "repository/owned", "-n", "shop", "--type=merge", "-p",
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, uid))
	f.kubectl("delete", "configmap/owner", "-n", "shop")
	f.gone("shop/owned:v1")
	f.exeunt("restore", "--cascade", uid)
	f.pulls("shop/owned:v1", img)
}

func (f repositoryFlow) refusesWhileDeleting() {
	img := f.push("shop/slow:v1")
	f.kubectl("patch", "repository/slow", "-n", "shop", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/wait"]}}`)
	f.kubectl("delete", "repository/slow", "-n", "shop", "--wait=false")
	f.refused("shop/slow:v2", "repository shop/slow is being deleted")
	f.pulls("shop/slow:v1", img)
	f.kubectl("patch", "repository/slow", "-n", "shop", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	f.gone("shop/slow:v1")
}

func (f repositoryFlow) goesWithItsNamespace() {
	plain := f.push("leaving/web:v1")
	deep := f.push("leaving/deep/down/web:v1")
	uid := f.kubectl("get", "namespace/leaving", "-o", "jsonpath={.metadata.uid}")
	f.kubectl("delete", "namespace/leaving", "--timeout=60s")
	f.gone("leaving/web:v1")
	f.gone("leaving/deep/down/web:v1")
	f.exeunt("restore", "--cascade", uid)
	f.pulls("leaving/web:v1", plain)
	f.pulls("leaving/deep/down/web:v1", deep)
	f.kubectl("delete", "namespace/leaving", "--timeout=60s")
	img := f.push("leaving/web:v2") // creates the namespace again
	if tags, err := crane.ListTags(f.at + "leaving/web"); err != nil || len(tags) != 1 {
		f.Errorf("tags of the new repository: %v, %v", tags, err)
	}
	f.pulls("leaving/web:v2", img)
}

// undeletes: the command restores tags and manifests.
func (f repositoryFlow) undeletes() {
	img := f.push("shop/undo:v1")
	d, err := img.Digest()
	if err != nil {
		f.Fatal(err)
	}
	ref := f.at + "shop/undo:v1"
	if err := crane.Delete(ref); err != nil {
		f.Fatal(err)
	}
	if out := f.exeunt("registry", "undelete", "--list", "shop/undo"); !strings.HasPrefix(out, "shop/undo:v1@"+d.String()+"  deleted ") {
		f.Errorf("list: %s", out)
	}
	f.exeunt("registry", "undelete", "shop/undo:v1")
	f.pulls("shop/undo:v1", img)
	if err := crane.Delete(f.at + "shop/undo@" + d.String()); err != nil {
		f.Fatal(err)
	}
	if _, err := crane.Pull(ref); err == nil {
		f.Error("a deleted image can be pulled")
	}
	f.exeunt("registry", "undelete", "shop/undo@"+d.String())
	f.pulls("shop/undo:v1", img)
	newer := f.push("shop/undo:v1")
	if r := f.s.Exeunt(f, "registry", "undelete", "shop/undo:v1"); r.Code == 0 || !strings.Contains(r.Stderr, "--move-tag shop/undo:v1@"+d.String()) {
		f.Errorf("undelete of a tag that was pushed since: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	f.pulls("shop/undo:v1", newer)
	f.exeunt("registry", "undelete", "--move-tag", "shop/undo:v1")
	f.pulls("shop/undo:v1", img)
}

// TestRepositoryBytes: a deleted repository frees its disk space, except for blobs that
// other repositories use.
func TestRepositoryBytes(t *testing.T) {
	eachRepositoryFlow(t, func(f repositoryFlow) {
		img := f.push("shop/web:v1")
		if err := crane.Copy(f.at+"shop/web:v1", f.at+"other/web:v1"); err != nil {
			f.Fatal(err)
		}
		for i := range 5 {
			f.push(fmt.Sprint("shop/web:more", i))
		}
		f.kubectl("delete", "repository/web", "-n", "shop")
		f.gone("shop/web:v1")
		harness.Until(f, "the bytes to be given back", func() error { return f.files(3) })
		f.pulls("other/web:v1", img)
		f.kubectl("delete", "namespace/other", "--timeout=60s")
		harness.Until(f, "all bytes to be given back", func() error { return f.files(0) })
		if out := f.exeunt("registry", "gc", "dry-run"); !strings.Contains(out, "0 manifests, 0 tags, 0 blobs and 0 abandoned uploads would go: 0B") {
			f.Errorf("dry run: %s", out)
		}
	}, "--archive-for=0", soon)
}

// files expects this number of files in the blob store, not counting the id file that
// links it to its database.
func (f repositoryFlow) files(want int) error {
	n := 0
	err := filepath.WalkDir(filepath.Join(filepath.Dir(f.s.Kubeconfig), "blobs"), func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && d.Type().IsRegular() && d.Name() != ".exeunt-id" {
			n++
		}
		return err
	})
	if err == nil && n != want {
		err = fmt.Errorf("%d files, not %d", n, want)
	}
	return err
}

// TestRepositorySwitches: with the flags, repositories or namespaces must exist before a
// push.
func TestRepositorySwitches(t *testing.T) {
	eachRepositoryFlow(t, func(f repositoryFlow) {
		f.refused("shop/web:v1", "accepts pushes only to declared repositories")
		f.kubectl("create", "namespace", "shop")
		r := f.s.KubectlCommand(f, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: "apiVersion: registry.exeunt.dev/v1\nkind: Repository\nmetadata: {name: web, namespace: shop}\nspec: {hold: true}\n"})
		if r.Code != 0 {
			f.Fatalf("declare: %s", r.Stderr)
		}
		f.pulls("shop/web:v1", f.push("shop/web:v1"))
	}, "--registry-create-repositories=false")
	eachRepositoryFlow(t, func(f repositoryFlow) {
		f.refused("shop/web:v1", "there is no namespace shop")
		f.kubectl("create", "namespace", "shop")
		f.push("shop/web:v1")
	}, "--registry-create-namespaces=false")
}
