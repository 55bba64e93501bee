package clientgo

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// seen records what an informer tells about each object.
type seen struct {
	sync.Mutex
	added, updated, deleted map[string]int
}

func (s *seen) count(which map[string]int, obj any) {
	s.Lock()
	defer s.Unlock()
	key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	which[key]++
}

func (s *seen) sizes() [3]int {
	s.Lock()
	defer s.Unlock()
	return [3]int{len(s.added), len(s.updated), len(s.deleted)}
}

func (s *seen) handler() cache.ResourceEventHandler {
	s.added, s.updated, s.deleted = map[string]int{}, map[string]int{}, map[string]int{}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.count(s.added, obj) },
		UpdateFunc: func(_, obj any) { s.count(s.updated, obj) },
		DeleteFunc: func(obj any) { s.count(s.deleted, obj) },
	}
}

func informer(t *testing.T, watchList bool) {
	made := config(t)
	counts := counted(made)
	client := clientset(t, made)
	ns := namespace(t, client)
	ctx := deadline(t)
	for i := range 20 {
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, configMap(fmt.Sprintf("before-%d", i), nil), metav1.CreateOptions{})
		must(t, err)
	}

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	record := &seen{}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(record.handler())
	must(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	found, err := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(ns).List(labels.Everything())
	must(t, err)
	own := 0
	for _, item := range found {
		if item.Name != "kube-root-ca.crt" {
			own++
		}
	}
	if own != 20 {
		t.Fatalf("%d objects in the cache after it is synced, want 20", own)
	}
	change(t, client, ns)
	eventually(t, "the informer saw every change", func() bool {
		sizes := record.sizes()
		return sizes[0] >= 40 && sizes[1] == 20 && sizes[2] == 20
	})
	record.Lock()
	defer record.Unlock()
	for _, events := range []map[string]int{record.added, record.updated, record.deleted} {
		for key, times := range events {
			if times != 1 {
				t.Errorf("%s was told %d times", key, times)
			}
		}
	}
	if watchList != (counts.watchLists.Load() > 0) || watchList == (counts.lists.Load() > 0) {
		t.Errorf("the informer sent %s", counts)
	}
}

// change creates twenty objects, changes each, and deletes the twenty that were there before.
func change(t *testing.T, client kubernetes.Interface, ns string) {
	ctx := deadline(t)
	for i := range 20 {
		one, err := client.CoreV1().ConfigMaps(ns).Create(ctx, configMap(fmt.Sprintf("after-%d", i), nil), metav1.CreateOptions{})
		must(t, err)
		one.Data = map[string]string{"n": fmt.Sprint(i)}
		_, err = client.CoreV1().ConfigMaps(ns).Update(ctx, one, metav1.UpdateOptions{})
		must(t, err)
		must(t, client.CoreV1().ConfigMaps(ns).Delete(ctx, fmt.Sprintf("before-%d", i), metav1.DeleteOptions{}))
	}
}

func TestInformerWithWatchList(t *testing.T) {
	t.Setenv("KUBE_FEATURE_WatchListClient", "true")
	informer(t, true)
}

func TestInformerWithPlainList(t *testing.T) {
	t.Setenv("KUBE_FEATURE_WatchListClient", "false")
	informer(t, false)
}

func TestInformerOfMetadataOnly(t *testing.T) {
	made := config(t)
	client := clientset(t, made)
	ns := namespace(t, client)
	ctx := deadline(t)
	partial, err := metadata.NewForConfig(made)
	must(t, err)
	factory := metadatainformer.NewFilteredSharedInformerFactory(partial, 0, ns, nil)
	record := &seen{}
	kind := factory.ForResource(corev1.SchemeGroupVersion.WithResource("secrets"))
	_, err = kind.Informer().AddEventHandler(record.handler())
	must(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"}}
	_, err = client.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the metadata came", func() bool { return record.sizes()[0] == 1 })
	found, err := kind.Lister().ByNamespace(ns).Get("s")
	must(t, err)
	if _, ok := found.(*metav1.PartialObjectMetadata); !ok {
		t.Fatalf("the cache holds a %T", found)
	}
}

func TestWatchGoesOnFromTheListedVersion(t *testing.T) {
	client := clientset(t, config(t))
	ns := namespace(t, client)
	ctx := deadline(t)
	list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
	must(t, err)
	for i := range 5 {
		_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, configMap(fmt.Sprint("c", i), nil), metav1.CreateOptions{})
		must(t, err)
	}
	seconds := int64(2)
	watch, err := client.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds, FieldSelector: "metadata.name!=c3,metadata.name!=kube-root-ca.crt",
	})
	must(t, err)
	names, began := []string{}, time.Now()
	for event := range watch.ResultChan() {
		names = append(names, event.Object.(*corev1.ConfigMap).Name)
	}
	if fmt.Sprint(names) != "[c0 c1 c2 c4]" {
		t.Errorf("the watch told of %v", names)
	}
	if lasted := time.Since(began); lasted > 10*time.Second {
		t.Errorf("a watch of two seconds lasted %s", lasted)
	}
}
