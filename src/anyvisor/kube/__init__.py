"""The only room that speaks Kubernetes' HTTP: client, informers, work queue, events, leader election."""
