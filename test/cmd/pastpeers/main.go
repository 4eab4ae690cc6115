// Command pastpeers asks for earlier states of objects in three ways: from the history of our server, from a git repository
// into which a loop commits `kubectl get -o yaml`, and from copies of an etcd, each started again with a kube-apiserver. The
// same changes go to our server and to a kube-apiserver. It prints how long an answer takes, how many are right, and how many
// of the states that were written history and git have.
//
//	go run ./cmd/pastpeers -exeunt ../bin/exeunt -peers $(../script/kubernetes etcd kube-apiserver)
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/test/peers"
)

const namespace = "shop"

type options struct {
	exeunt, peers           string
	objects, minutes, asked int
	every                   time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.exeunt, "exeunt", "bin/exeunt", "the program")
	flag.StringVar(&o.peers, "peers", "", "directory of the other programs: what script/kubernetes prints")
	flag.IntVar(&o.objects, "objects", 500, "objects in the namespace")
	flag.IntVar(&o.minutes, "minutes", 4, "how long objects change")
	flag.IntVar(&o.asked, "questions", 20, "how many questions history and git answer")
	flag.DurationVar(&o.every, "every", time.Minute, "time between two commits, and two copies")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	dir, err := os.MkdirTemp("", "exeunt-pastpeers-")
	if err == nil {
		err = errors.Join((&world{options: o, dir: dir}).run(ctx), os.RemoveAll(dir))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pastpeers:", err)
		os.Exit(1)
	}
}

// world is both servers, and what was written to them.
type world struct {
	options
	dir           string
	group         *peers.Group
	ours, theirs  *kubernetes.Clientset
	written       []write
	commits, kept []time.Time // when each commit, and each copy of etcd, began
}

// write is a state of an object; without a value it was deleted.
type write struct {
	at          time.Time
	name, value string
}

func (w *world) run(ctx context.Context) (err error) {
	group, err := peers.NewGroup(w.peers, filepath.Join(w.dir, "a"))
	if err != nil {
		return err
	}
	w.group = group
	defer func() { err = errors.Join(err, group.Stop()) }()
	config, err := group.APIServer(ctx)
	if err != nil {
		return err
	}
	data := filepath.Join(w.dir, "data")
	if _, err := group.StartPath(w.exeunt, "serve", "--data", data, "--listen", "127.0.0.1:17643", "--registry-listen", "127.0.0.1:17644"); err != nil {
		return err
	}
	if w.theirs, err = connect(ctx, config); err == nil {
		w.ours, err = connect(ctx, filepath.Join(data, "kubeconfig"))
	}
	if err == nil {
		err = w.change(ctx, config)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%d objects, %d states written, %d commits, %d copies of etcd\n", w.objects, len(w.written), len(w.commits), len(w.kept))
	if err := w.count(ctx); err != nil {
		return err
	}
	questions := w.questions()
	if err := w.ask("history", questions, func(q write) (string, error) { return w.past(ctx, q) }); err != nil {
		return err
	}
	if err := w.ask("git", questions, func(q write) (string, error) { return w.git(q) }); err != nil {
		return err
	}
	return w.ask("etcd", questions[:2], func(q write) (string, error) { return w.copied(ctx, q) })
}

// connect waits until a server answers.
func connect(ctx context.Context, kubeconfig string) (*kubernetes.Clientset, error) {
	for {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			config.QPS = -1
			client, failed := kubernetes.NewForConfig(config)
			if err = failed; err == nil {
				if _, err = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
					return client, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// change creates the objects, and then changes one each half second; each tenth one is created, and deleted 20 seconds later.
func (w *world) change(ctx context.Context, kubeconfig string) error {
	repository := filepath.Join(w.dir, "git")
	if err := command("", "git", "init", "-q", repository); err != nil {
		return err
	}
	for _, c := range []*kubernetes.Clientset{w.ours, w.theirs} {
		if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range w.objects {
		if err := w.write(ctx, fmt.Sprint("c-", i), "0", true); err != nil {
			return err
		}
	}
	var short []write
	snapshot := time.Now()
	end := snapshot.Add(time.Duration(w.minutes) * time.Minute)
	for n := 1; time.Now().Before(end); n++ {
		if !time.Now().Before(snapshot) {
			if err := w.keep(kubeconfig, repository); err != nil {
				return err
			}
			snapshot = snapshot.Add(w.every)
		}
		name, fresh := fmt.Sprint("c-", rand.IntN(w.objects)), n%10 == 0
		if fresh {
			name = fmt.Sprint("short-", n)
			short = append(short, write{time.Now(), name, ""})
		}
		if err := w.write(ctx, name, fmt.Sprint(n), fresh); err != nil {
			return err
		}
		if len(short) > 0 && time.Since(short[0].at) > 20*time.Second {
			if err := w.write(ctx, short[0].name, "", false); err != nil {
				return err
			}
			short = short[1:]
		}
		time.Sleep(500 * time.Millisecond)
	}
	time.Sleep(3 * time.Second) // so that the last second is over
	return nil
}

// write writes a state of an object to both servers.
func (w *world) write(ctx context.Context, name, value string, create bool) (err error) {
	for _, c := range []*kubernetes.Clientset{w.theirs, w.ours} {
		api := c.CoreV1().ConfigMaps(namespace)
		switch {
		case create:
			_, err = api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value, "rest": string(bytes.Repeat([]byte("x"), 1000))}}, metav1.CreateOptions{})
		case value == "":
			err = api.Delete(ctx, name, metav1.DeleteOptions{})
		default:
			_, err = api.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"value":"`+value+`"}}`), metav1.PatchOptions{})
		}
		if err != nil {
			return err
		}
	}
	w.written = append(w.written, write{time.Now(), name, value})
	return nil
}

// keep commits the objects, and copies the data of etcd, which is stopped meanwhile.
func (w *world) keep(kubeconfig, repository string) error {
	w.commits = append(w.commits, time.Now())
	list, err := exec.Command("kubectl", "--kubeconfig", kubeconfig, "-n", namespace, "get", "configmaps", "-o", "yaml").Output()
	if err == nil {
		err = os.WriteFile(filepath.Join(repository, "shop.yaml"), list, 0o600)
	}
	if err == nil {
		err = command(repository, "git", "add", "-A")
	}
	if err == nil {
		err = command(repository, "git", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "shop")
	}
	if err != nil {
		return err
	}
	w.kept = append(w.kept, time.Now())
	resume, err := w.group.Pause("etcd")
	if err != nil {
		return err
	}
	return errors.Join(command("", "cp", "-a", filepath.Join(w.dir, "a", "etcd"), filepath.Join(w.dir, fmt.Sprint("etcd-", len(w.kept)))), resume())
}

func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// questions are objects that changed, each at a random second in which it did not change, with the value of then.
func (w *world) questions() (all []write) {
	first, last := w.kept[0], time.Now().Add(-4*time.Second)
	for len(all) < w.asked {
		q := write{name: w.written[w.objects+rand.IntN(len(w.written)-w.objects)].name}
		q.at = first.Add(rand.N(last.Sub(first))).Truncate(time.Second)
		near := false
		for _, other := range w.written {
			if other.name != q.name {
				continue
			}
			near = near || other.at.After(q.at.Add(-time.Second)) && other.at.Before(q.at.Add(2*time.Second))
			if other.at.Before(q.at) {
				q.value = other.value
			}
		}
		if !near {
			all = append(all, q)
		}
	}
	return all
}

// count prints how many of the states that were written the history has, and how many git. The copies of etcd are of the same moments.
func (w *world) count(ctx context.Context) error {
	history, git, all := map[write]bool{}, map[write]bool{}, map[write]bool{}
	names := map[string]bool{}
	for _, q := range w.written {
		names[q.name] = true
		all[write{name: q.name, value: q.value}] = q.value != ""
	}
	for name := range names {
		text, err := w.ours.CoreV1().RESTClient().Get().AbsPath("/at/versions/api/v1/namespaces", namespace, "configmaps", name).Param("limit", "500").Do(ctx).Raw()
		if err != nil {
			return err
		}
		var list struct {
			Items []struct {
				Object corev1.ConfigMap `json:"object"`
			} `json:"items"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			history[write{name: name, value: item.Object.Data["value"]}] = true
		}
	}
	for _, at := range w.commits {
		list, err := w.committed(at.Add(w.every / 2))
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			git[write{name: o.Name, value: o.Data["value"]}] = true
		}
	}
	total, inHistory, inGit := 0, 0, 0
	for state, exists := range all {
		if exists {
			total++
			inHistory += map[bool]int{true: 1}[history[state]]
			inGit += map[bool]int{true: 1}[git[state]]
		}
	}
	fmt.Printf("of %d states the history has %d, git %d\n", total, inHistory, inGit)
	return nil
}

// ask asks all questions in one way, and prints the times of the answers.
func (w *world) ask(way string, questions []write, answer func(write) (string, error)) error {
	var took []time.Duration
	right := 0
	for _, q := range questions {
		begin := time.Now()
		value, err := answer(q)
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		if took = append(took, time.Since(begin)); value == q.value {
			right++
		}
	}
	slices.Sort(took)
	fmt.Printf("%s: %v (median of %d, longest %v), %d right\n", way, took[len(took)/2], len(took), took[len(took)-1], right)
	return nil
}

func valueOf(o *corev1.ConfigMap, err error) (string, error) {
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return o.Data["value"], err
}

func (w *world) past(ctx context.Context, q write) (string, error) {
	var o corev1.ConfigMap
	err := w.ours.CoreV1().RESTClient().Get().AbsPath("/at", q.at.UTC().Format(time.RFC3339), "api/v1/namespaces", namespace, "configmaps", q.name).Do(ctx).Into(&o)
	return valueOf(&o, err)
}

// git looks into the last commit before the time.
func (w *world) git(q write) (string, error) {
	list, err := w.committed(q.at)
	if err != nil {
		return "", err
	}
	for _, o := range list.Items {
		if o.Name == q.name {
			return o.Data["value"], nil
		}
	}
	return "", nil
}

// committed is what the last commit before a time has.
func (w *world) committed(at time.Time) (list corev1.ConfigMapList, err error) {
	repository := filepath.Join(w.dir, "git")
	commit, err := exec.Command("git", "-C", repository, "log", "-1", "--format=%H", "--before="+at.Format(time.RFC3339)).Output()
	if err != nil {
		return list, err
	}
	text, err := exec.Command("git", "-C", repository, "show", string(bytes.TrimSpace(commit))+":shop.yaml").Output()
	if err != nil {
		return list, err
	}
	return list, yaml.Unmarshal(text, &list)
}

// copied starts the last copy of etcd before the time, with a kube-apiserver.
func (w *world) copied(ctx context.Context, q write) (value string, err error) {
	n := 0
	for n < len(w.kept) && w.kept[n].Before(q.at) {
		n++
	}
	dir, err := os.MkdirTemp(w.dir, "b-")
	if err != nil {
		return "", err
	}
	if err := command("", "cp", "-a", filepath.Join(w.dir, fmt.Sprint("etcd-", n)), filepath.Join(dir, "etcd")); err != nil {
		return "", err
	}
	group, err := peers.NewGroup(w.peers, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, group.Stop()) }()
	config, err := group.APIServer(ctx)
	if err != nil {
		return "", err
	}
	client, err := connect(ctx, config)
	if err != nil {
		return "", err
	}
	return valueOf(client.CoreV1().ConfigMaps(namespace).Get(ctx, q.name, metav1.GetOptions{}))
}
