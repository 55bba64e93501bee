package clientgo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

func machine(name string, cores int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "judge.anyvisor.io/v1", "kind": "Machine",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": name}},
		"spec":     map[string]any{"cores": cores},
	}}
}

func TestDynamicClient(t *testing.T) {
	made := config(t)
	ns := namespace(t, clientset(t, made))
	ctx := deadline(t)
	client, err := dynamic.NewForConfig(made)
	must(t, err)
	all := client.Resource(machines).Namespace(ns)
	watch, err := all.Watch(ctx, metav1.ListOptions{LabelSelector: "app=a"})
	must(t, err)
	_, err = all.Create(ctx, machine("a", 2), metav1.CreateOptions{})
	must(t, err)
	_, err = all.Create(ctx, machine("b", 2), metav1.CreateOptions{})
	must(t, err)
	patched, err := all.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"cores":4}}`), metav1.PatchOptions{})
	must(t, err)
	if cores, _, _ := unstructured.NestedInt64(patched.Object, "spec", "cores"); cores != 4 {
		t.Errorf("%d cores after the patch", cores)
	}
	patched.Object["status"] = map[string]any{"phase": "Running"}
	updated, err := all.UpdateStatus(ctx, patched, metav1.UpdateOptions{})
	must(t, err)
	if updated.GetGeneration() != 2 {
		t.Errorf("generation %d after one change of the spec and one of the status", updated.GetGeneration())
	}
	applied, err := all.Apply(ctx, "a", machine("a", 4), metav1.ApplyOptions{FieldManager: "judge", Force: true})
	must(t, err)
	if phase, _, _ := unstructured.NestedString(applied.Object, "status", "phase"); phase != "Running" {
		t.Errorf("the apply of the spec left the phase %q", phase)
	}
	must(t, all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app in (a,b)"}))
	kinds := ""
	for event := range watch.ResultChan() {
		kinds += string(event.Type[0])
		if event.Type == "DELETED" {
			break
		}
	}
	if !strings.HasPrefix(kinds, "AMM") || strings.Count(kinds, "A") != 1 || !strings.HasSuffix(kinds, "D") {
		t.Errorf("the watch told %s", kinds)
	}
	_, err = all.Create(ctx, machine("c", 999), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid) {
		t.Errorf("999 cores: %v", err)
	}
}

func TestApplyWithTypedConfigurations(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	pods := client.CoreV1().Services(ns)
	one := metav1.ApplyOptions{FieldManager: "one"}
	two := metav1.ApplyOptions{FieldManager: "two"}
	port := func(number int32, name string) *applyv1.ServicePortApplyConfiguration {
		return applyv1.ServicePort().WithName(name).WithPort(number).WithProtocol(corev1.ProtocolTCP)
	}
	base := applyv1.Service("s", ns).WithLabels(map[string]string{"owner": "one"}).
		WithSpec(applyv1.ServiceSpec().WithClusterIP("None").WithPorts(port(80, "http")))
	_, err := pods.Apply(ctx, base, one)
	must(t, err)
	other := applyv1.Service("s", ns).WithLabels(map[string]string{"owner": "two"}).
		WithSpec(applyv1.ServiceSpec().WithPorts(port(443, "https")))
	_, err = pods.Apply(ctx, other, two)
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Fatalf("the label of another manager: %v", err)
	}
	two.Force = true
	both, err := pods.Apply(ctx, other, two)
	must(t, err)
	if len(both.Spec.Ports) != 2 || both.Labels["owner"] != "two" {
		t.Errorf("after the forced apply: %v, %v", both.Spec.Ports, both.Labels)
	}
	mine, err := applyv1.ExtractService(both, "two")
	must(t, err)
	if len(mine.Spec.Ports) != 1 || *mine.Spec.Ports[0].Port != 443 || mine.Spec.ClusterIP != nil {
		t.Errorf("what the second manager owns: %v", mine.Spec)
	}
	left, err := pods.Apply(ctx, applyv1.Service("s", ns).WithSpec(applyv1.ServiceSpec().WithClusterIP("None")), one)
	must(t, err)
	if len(left.Spec.Ports) != 1 || left.Spec.Ports[0].Name != "https" {
		t.Errorf("after the first manager gave up its port: %v", left.Spec.Ports)
	}
}

func TestRESTMapperFromDiscovery(t *testing.T) {
	client := clientset(t, config(t))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	for _, kind := range []struct {
		gk    schema.GroupKind
		want  string
		scope meta.RESTScopeName
	}{
		{schema.GroupKind{Group: "judge.anyvisor.io", Kind: "Machine"}, "machines", meta.RESTScopeNameNamespace},
		{schema.GroupKind{Group: "", Kind: "Node"}, "nodes", meta.RESTScopeNameRoot},
		{schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, "leases", meta.RESTScopeNameNamespace},
		{schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, "customresourcedefinitions", meta.RESTScopeNameRoot},
	} {
		found, err := mapper.RESTMapping(kind.gk)
		must(t, err)
		if found.Resource.Resource != kind.want || found.Scope.Name() != kind.scope {
			t.Errorf("%s is %s, %s", kind.gk, found.Resource, found.Scope.Name())
		}
	}
	short := restmapper.NewShortcutExpander(mapper, client.Discovery(), nil)
	found, err := short.ResourceFor(schema.GroupVersionResource{Resource: "jmc"})
	must(t, err)
	if found != machines {
		t.Errorf("the short name means %s", found)
	}
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	must(t, err)
	if len(lists) < 10 {
		t.Errorf("%d group versions", len(lists))
	}
	paths, err := client.Discovery().OpenAPIV3().Paths()
	must(t, err)
	document, err := paths["apis/judge.anyvisor.io/v1"].Schema(runtime.ContentTypeJSON)
	must(t, err)
	if !strings.Contains(string(document), `"cores"`) {
		t.Error("the OpenAPI document lacks a field of the kind")
	}
	old, err := client.Discovery().OpenAPISchema()
	must(t, err)
	if len(old.GetDefinitions().GetAdditionalProperties()) < 50 {
		t.Error("the OpenAPI v2 document lacks definitions")
	}
}

func TestLeaderElection(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	leads := make(chan string, 10)
	run := func(ctx context.Context, name string) {
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "leader", Namespace: ns}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second,
			RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
	}
	first, stop := context.WithCancel(deadline(t))
	var done sync.WaitGroup
	done.Go(func() { run(first, "one") })
	if got := <-leads; got != "one" {
		t.Fatalf("%s leads", got)
	}
	second, end := context.WithCancel(deadline(t))
	done.Go(func() { run(second, "two") })
	select {
	case got := <-leads:
		t.Fatalf("%s leads beside the first", got)
	case <-time.After(time.Second):
	}
	stop()
	if got := <-leads; got != "two" {
		t.Fatalf("%s leads after the first gave up", got)
	}
	end()
	done.Wait()
}

func TestRetryOnConflict(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	counters := client.CoreV1().ConfigMaps(ns)
	_, err := counters.Create(ctx, configMap("counter", map[string]string{"n": "0"}), metav1.CreateOptions{})
	must(t, err)
	var group sync.WaitGroup
	patient := wait.Backoff{Steps: 500, Duration: 5 * time.Millisecond, Factor: 1, Jitter: 2}
	for range 8 {
		group.Go(func() {
			for range 10 {
				err := retry.RetryOnConflict(patient, func() error {
					one, err := counters.Get(ctx, "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					n, _ := strconv.Atoi(one.Data["n"])
					one.Data["n"] = strconv.Itoa(n + 1)
					_, err = counters.Update(ctx, one, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	last, err := counters.Get(ctx, "counter", metav1.GetOptions{})
	must(t, err)
	if last.Data["n"] != "80" {
		t.Errorf("80 increments gave %s", last.Data["n"])
	}
}

func TestProtobufIsAskedAndSent(t *testing.T) {
	made := config(t)
	made.ContentType = runtime.ContentTypeProtobuf
	made.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client := clientset(t, rest.CopyConfig(made))
	ns := namespace(t, client)
	ctx := deadline(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"k": {0, 1, 255}}}
	_, err := client.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{})
	must(t, err)
	found, err := client.CoreV1().Secrets(ns).Get(ctx, "s", metav1.GetOptions{})
	must(t, err)
	if fmt.Sprint(found.Data["k"]) != "[0 1 255]" {
		t.Errorf("the secret came back as %v", found.Data)
	}
	list, err := client.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 {
		t.Errorf("%d secrets", len(list.Items))
	}
	zero := int64(0)
	background := metav1.DeletePropagationBackground
	must(t, client.CoreV1().Secrets(ns).Delete(ctx, "s", metav1.DeleteOptions{
		GracePeriodSeconds: &zero, PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(found.UID)),
	}))
	_, err = client.CoreV1().Secrets(ns).Get(ctx, "s", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestListInPages(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	for i := range 25 {
		_, err := client.CoreV1().Secrets(ns).Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}, metav1.CreateOptions{})
		must(t, err)
	}
	pages := 0
	lister := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		pages++
		return client.CoreV1().Secrets(ns).List(ctx, options)
	})
	lister.PageSize = 7
	found := map[string]bool{}
	must(t, lister.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		found[obj.(*corev1.Secret).Name] = true
		return nil
	}))
	if len(found) != 25 || pages != 4 {
		t.Errorf("%d objects in %d pages", len(found), pages)
	}
}

func TestEventRecorder(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	about, err := client.CoreV1().ConfigMaps(ns).Create(ctx, configMap("about", nil), metav1.CreateOptions{})
	must(t, err)
	about.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events(ns)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "judge"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeNormal, "Judged", "it is a good one")
	}
	eventually(t, "three events became one with a count", func() bool {
		list, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=about,reason=Judged"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 3
	})
}

func TestServiceAccountTokenIsALogin(t *testing.T) {
	made := config(t)
	client := clientset(t, made)
	ns := namespace(t, client)
	ctx := deadline(t)
	_, err := client.CoreV1().ServiceAccounts(ns).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bot"}}, metav1.CreateOptions{})
	must(t, err)
	seconds := int64(3600)
	token, err := client.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "bot", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	must(t, err)
	plain := rest.AnonymousClientConfig(made)
	plain.BearerToken = token.Status.Token
	bot := clientset(t, plain)
	who, err := bot.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	if who.Status.UserInfo.Username != "system:serviceaccount:"+ns+":bot" {
		t.Errorf("the token's user is %q", who.Status.UserInfo.Username)
	}
	_, err = bot.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("an account without a role: %v", err)
	}
}

func TestOwnersTakeTheirDependentsAlong(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	maps := client.CoreV1().ConfigMaps(ns)
	owner, err := maps.Create(ctx, configMap("owner", nil), metav1.CreateOptions{})
	must(t, err)
	child := configMap("child", nil)
	yes := true
	child.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: &yes, Controller: &yes,
	}}
	child.Finalizers = []string{"judge.anyvisor.io/wait"}
	child, err = maps.Create(ctx, child, metav1.CreateOptions{})
	must(t, err)
	foreground := metav1.DeletePropagationForeground
	must(t, maps.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	eventually(t, "the dependent is being deleted", func() bool {
		child, err = maps.Get(ctx, "child", metav1.GetOptions{})
		return err == nil && child.DeletionTimestamp != nil
	})
	waiting, err := maps.Get(ctx, "owner", metav1.GetOptions{})
	must(t, err)
	if fmt.Sprint(waiting.Finalizers) != "[foregroundDeletion]" {
		t.Errorf("the owner waits with %v", waiting.Finalizers)
	}
	child.Finalizers = nil
	_, err = maps.Update(ctx, child, metav1.UpdateOptions{})
	must(t, err)
	eventually(t, "both are gone", func() bool {
		_, err := maps.Get(ctx, "owner", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
