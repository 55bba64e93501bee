// Package clientgo holds an API server to what programs on k8s.io/client-go expect of Kubernetes.
//
// Every test runs in a process of its own, since feature gates of client-go are read once in each process.
// KUBECONFIG names the server; it must serve the CustomResourceDefinition machines.judge.anyvisor.io.
package clientgo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 30 * time.Second

var machines = schema.GroupVersionResource{Group: "judge.anyvisor.io", Version: "v1", Resource: "machines"}

func config(t *testing.T) *rest.Config {
	t.Helper()
	made, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	made.QPS, made.Burst = 500, 500
	return made
}

func clientset(t *testing.T, made *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(made)
	must(t, err)
	return client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// namespace makes a namespace for one test and deletes it when the test ends.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(deadline(t),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "clientgo-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	return made.Name
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// requests counts what a client sends.
type requests struct {
	next        http.RoundTripper
	lists       atomic.Int64
	watchLists  atomic.Int64
	plainWatch  atomic.Int64
	contentType atomic.Value
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	switch {
	case request.Method != http.MethodGet || !strings.HasSuffix(request.URL.Path, "/configmaps"):
	case query.Get("sendInitialEvents") == "true":
		r.watchLists.Add(1)
	case query.Get("watch") != "":
		r.plainWatch.Add(1)
	default:
		r.lists.Add(1)
	}
	response, err := r.next.RoundTrip(request)
	if err == nil {
		r.contentType.Store(response.Header.Get("Content-Type"))
	}
	return response, err
}

func counted(made *rest.Config) *requests {
	counts := &requests{}
	made.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counts.next = next
		return counts
	})
	return counts
}

func (r *requests) String() string {
	return fmt.Sprintf("%d lists, %d watch lists, %d watches", r.lists.Load(), r.watchLists.Load(), r.plainWatch.Load())
}
