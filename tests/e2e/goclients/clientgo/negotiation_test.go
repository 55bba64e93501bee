package clientgo

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"

	corev1 "k8s.io/api/core/v1"
)

// TestProtobufPreferredGetsJSON: typed clients send protobuf and say that they would rather have it; they get JSON.
func TestProtobufPreferredGetsJSON(t *testing.T) {
	made := config(t)
	made.ContentType = runtime.ContentTypeProtobuf
	made.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	counts := counted(made)
	client := clientset(t, made)
	space := namespace(t, client)
	_, err := client.CoreV1().ConfigMaps(space).Create(deadline(t), configMap("a", map[string]string{"k": "v"}), metav1.CreateOptions{})
	must(t, err)
	listed, err := client.CoreV1().ConfigMaps(space).List(deadline(t), metav1.ListOptions{LabelSelector: "!x"})
	must(t, err)
	found := false
	for _, item := range listed.Items {
		found = found || item.Data["k"] == "v"
	}
	if !found {
		t.Fatalf("the object is not in the list: %v", listed.Items)
	}
	if kind := counts.contentType.Load(); kind != "application/json" {
		t.Fatalf("answered as %v", kind)
	}
}

// TestProtobufAloneIsRefused: nothing is answered in a form that was not asked for.
func TestProtobufAloneIsRefused(t *testing.T) {
	made := config(t)
	made.ContentType = runtime.ContentTypeProtobuf
	made.AcceptContentTypes = runtime.ContentTypeProtobuf
	_, err := clientset(t, made).CoreV1().ConfigMaps("default").List(deadline(t), metav1.ListOptions{})
	if apierrors.ReasonForError(err) != metav1.StatusReasonNotAcceptable {
		t.Fatalf("want NotAcceptable, have %v", err)
	}
}

// TestMetadataClient lists and watches metadata alone, as controllers of garbage collection and quota do.
func TestMetadataClient(t *testing.T) {
	made := config(t)
	space := namespace(t, clientset(t, made))
	client, err := metadata.NewForConfig(made)
	must(t, err)
	maps := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(space)
	watching, err := maps.Watch(deadline(t), metav1.ListOptions{})
	must(t, err)
	defer watching.Stop()
	_, err = clientset(t, made).CoreV1().ConfigMaps(space).Create(deadline(t), configMap("watched", nil), metav1.CreateOptions{})
	must(t, err)
	for event := range watching.ResultChan() {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			t.Fatalf("watched %T", event.Object)
		}
		if object.Name == "watched" {
			break
		}
	}
	listed, err := maps.List(deadline(t), metav1.ListOptions{})
	must(t, err)
	found := false
	for _, item := range listed.Items {
		found = found || item.Name == "watched"
	}
	if !found {
		t.Fatalf("not in the list of metadata: %v", listed.Items)
	}
}
