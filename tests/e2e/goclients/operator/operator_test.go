// Package operator runs a controller on sigs.k8s.io/controller-runtime against an API server.
//
// KUBECONFIG names the server; it must serve the CustomResourceDefinition machines.judge.anyvisor.io.
package operator

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	finalizer = "judge.anyvisor.io/cleanup"
	patience  = 30 * time.Second
)

var kind = schema.GroupVersionKind{Group: "judge.anyvisor.io", Version: "v1", Kind: "Machine"}

// reconciler keeps one ConfigMap for each replica of a machine, counts them in its status, and leaves a note when
// the machine goes.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := newMachine()
	if err := r.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, r.leave(ctx, machine)
	}
	if controllerutil.AddFinalizer(machine, finalizer) {
		return ctrl.Result{}, r.Update(ctx, machine)
	}
	replicas, _, _ := unstructured.NestedInt64(machine.Object, "spec", "replicas")
	for i := range replicas {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: request.Namespace, Name: fmt.Sprintf("%s-%d", request.Name, i),
		}}
		_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
			child.Data = map[string]string{"replica": fmt.Sprint(i)}
			return controllerutil.SetControllerReference(machine, child, r.Scheme())
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	before := machine.DeepCopy()
	machine.Object["status"] = map[string]any{"phase": "Running", "replicas": replicas}
	return ctrl.Result{}, r.Status().Patch(ctx, machine, client.MergeFrom(before))
}

func (r *reconciler) leave(ctx context.Context, machine *unstructured.Unstructured) error {
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: machine.GetNamespace(), Name: "note"}}
	if err := r.Create(ctx, note); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	controllerutil.RemoveFinalizer(machine, finalizer)
	return r.Update(ctx, machine)
}

func newMachine() *unstructured.Unstructured {
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(kind)
	return machine
}

// start runs the controller, elected by a Lease, until the test ends.
func start(t *testing.T, ns string) manager.Manager {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	config.QPS, config.Burst = 500, 500
	made, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}, LeaderElection: true,
		LeaderElectionID: "judge", LeaderElectionNamespace: ns, LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	must(t, ctrl.NewControllerManagedBy(made).For(newMachine()).Owns(&corev1.ConfigMap{}).Complete(&reconciler{made.GetClient()}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return made
}

func TestReconcilerWithOwnedObjectsAndFinalizer(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-"}}
	must(t, direct.Create(ctx, ns))
	t.Cleanup(func() { _ = direct.Delete(context.Background(), ns) })
	start(t, ns.Name)

	machine := newMachine()
	machine.SetNamespace(ns.Name)
	machine.SetName("m")
	machine.Object["spec"] = map[string]any{"replicas": int64(3)}
	must(t, direct.Create(ctx, machine))
	key := client.ObjectKeyFromObject(machine)
	exists := func(name string) bool {
		return direct.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: name}, &corev1.ConfigMap{}) == nil
	}
	eventually(t, "the status counts the replicas", func() bool {
		must(t, direct.Get(ctx, key, machine))
		replicas, _, _ := unstructured.NestedInt64(machine.Object, "status", "replicas")
		return replicas == 3
	})
	child := &corev1.ConfigMap{}
	must(t, direct.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "m-1"}, child))
	if !metav1.IsControlledBy(child, machine) {
		t.Errorf("the owners of a replica: %v", child.OwnerReferences)
	}
	must(t, direct.Delete(ctx, child))
	eventually(t, "a deleted replica is made anew", func() bool { return exists("m-1") })

	must(t, direct.Delete(ctx, machine))
	eventually(t, "the machine is gone", func() bool { return apierrors.IsNotFound(direct.Get(ctx, key, newMachine())) })
	if !exists("note") {
		t.Error("the finalizer did not run before the machine went")
	}
	eventually(t, "the replicas went with their owner", func() bool {
		return !exists("m-0") && !exists("m-1") && !exists("m-2")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
