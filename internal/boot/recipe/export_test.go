package recipe

// KernelWords is kernelWords.
var KernelWords = kernelWords
