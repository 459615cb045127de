package operator

import (
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Blueprint is a program that was built for one job: the graph, and for each part of it the typed
// code that the graph only describes.
type Blueprint struct {
	Name  string
	Graph job.Graph
	// Settings are those that the program set itself.
	Settings map[string]string
	Nodes    []Node // One per operator of the graph.
}

// Node makes the operators of one node and the ends of its input edges.
type Node struct {
	New Factory
	// Inputs has an element for each element of the graph operator's Inputs.
	Inputs []Input
}

// Input is the typed part of an edge.
type Input struct {
	Router RouterFactory
	// Rebalance is used in place of Router when a forward edge joins different parallelisms.
	Rebalance RouterFactory
	// Frames carries the records between processes; nil when their type has no codec, for which
	// NoCodec is the reason.
	Frames  record.Frames
	NoCodec error
	// Empty makes a batch of the records' type.
	Empty func() record.Any
}
